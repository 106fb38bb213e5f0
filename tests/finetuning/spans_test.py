"""Tests of answering questions, from files to whole runs of a tiny model."""

import json
import os
import pathlib
import types
import unicodedata

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from bert_jax import errors
from bert_jax.finetuning import (
  encode,
  span_windows,
  spans,
  training,
)
from bert_jax.finetuning.readers import squad
from bert_jax.model import classifier
from bert_jax.tokenization import tokenizer
from tests import models
from tests.finetuning import made


def make_squad(rows):
  """Returns the content of a file of rows (id, question, passage, answers)."""
  paragraphs = [
    {
      'context': passage,
      'qas': [
        {
          'id': name,
          'question': question,
          'answers': [
            {'text': text, 'answer_start': start} for text, start in answers
          ],
          'is_impossible': not answers,
        }
      ],
    }
    for name, question, passage, answers in rows
  ]
  return {'version': '1.1', 'data': [{'paragraphs': paragraphs}]}


def write_squad(path, rows) -> str:
  path.write_text(json.dumps(make_squad(rows)))
  return str(path)


def write_questions(folder, unanswerable=False):
  """Writes questions whose answer is the animal that they name, in capitals.

  A fourth has no answer, if so wished: the passage has no such animal.
  """
  folder.mkdir(parents=True)
  rows = []
  for i in range(48):
    animal = ('cat', 'dog')[i % 2]
    words = ['the'] * (2 + i % 9)  # some need two windows
    words.insert(i % 3, ('Dogs', 'Cats')[i % 2])
    there = not unanswerable or i % 4 > 0
    if there:
      words.insert(i % 5, animal.upper())
    passage = ' '.join(words)
    answers = [(animal.upper(), passage.find(animal.upper()))] if there else []
    rows.append((f'q{i}', animal, passage, answers))
  write_squad(folder / 'train.json', rows)
  write_squad(folder / 'dev.json', rows[:20])
  return str(folder)


def make_config(root, unanswerable=False, **changes):
  return made.configure(
    root,
    write_questions(root / 'questions', unanswerable),
    **{
      'task': 'spans',
      'data.text': '',
      'data.label': '',
      'finetuning.epochs': 24.0,
      'finetuning.head_dropout': 0.0,
      'model.dropout': 0.0,
      'model.attention_dropout': 0.0,
      'finetuning.doc_stride': 3,
      'finetuning.max_query_length': 2,
      'finetuning.max_answer_length': 3,
      'finetuning.unanswerable': unanswerable,
      **changes,
    },
  )


def make_batch():
  """Returns two rows: [CLS] q [SEP] p p p [SEP], and with less of a passage."""
  return {
    'input_ids': np.array([[2, 5, 3, 6, 7, 6, 3], [2, 7, 3, 6, 3, 0, 0]]),
    'input_mask': np.array([[1] * 7, [1, 1, 1, 1, 1, 0, 0]]),
    'segment_ids': np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]]),
    'starts': np.array([[3, 5], [3, 4]]),
    'labels': np.array([[3, 4], [0, 0]]),
    'label_weights': np.array([1.0, 1.0]),
  }


def test_the_best_of_every_possible_answer_is_found():
  random = np.random.default_rng(0)
  logits = random.normal(size=(2, 7, 2)).astype(np.float32)
  find = jax.jit(spans.find_best, static_argnums=2)
  found = find(logits, make_batch(), 2)
  # Starts are at 3 and 4, ends up to 5, at most two tokens together.
  for row, possible in enumerate([[(3, 3), (3, 4), (4, 4), (4, 5)], [(3, 3)]]):
    a, b = max(
      possible, key=lambda x: logits[row, x[0], 0] + logits[row, x[1], 1]
    )
    assert (found['firsts'][row], found['lasts'][row]) == (a, b)
    expected = logits[row, a, 0], logits[row, b, 1]
    np.testing.assert_allclose(found['scores'][row], expected, atol=1e-6)
  np.testing.assert_array_equal(found['nulls'], logits[:, 0])
  empty = make_batch() | {'starts': np.array([[3, 3], [3, 4]])}
  found = find(logits, empty, 2)
  assert not np.isfinite(found['scores'][0].sum())


def compute(monkeypatch, logits, **changes):
  monkeypatch.setattr(spans.supervised, 'apply', lambda *_: logits)
  asked = classifier.Spans(128, 64, 3, None)
  batch = make_batch() | changes
  size = ((0, 0), (0, logits.shape[1] - batch['input_ids'].shape[1]))
  for name in ('input_ids', 'input_mask', 'segment_ids'):
    batch[name] = np.pad(batch[name], size)
  compute_sums = jax.jit(spans.TASK.compute_sums, static_argnums=(0, 1, 3, 4))
  return compute_sums(None, None, batch, None, asked)


LOGITS = np.random.default_rng(0).normal(size=(2, 7, 2)).astype(np.float32)


def test_the_loss_is_the_mean_of_those_of_the_first_and_the_last_token(
  monkeypatch,
):
  sums, best = compute(monkeypatch, LOGITS)
  likely = special.log_softmax(LOGITS[:1], axis=1)
  expected = -(likely[0, 3, 0] + likely[0, 4, 1]) / 2
  likely = special.log_softmax(LOGITS[1:, :5], axis=1)
  expected -= (likely[0, 0, 0] + likely[0, 0, 1]) / 2
  assert sums['cross_entropy'] == pytest.approx(expected, rel=1e-5)
  longer = np.pad(LOGITS, ((0, 0), (0, 9), (0, 0)), constant_values=3)
  more, again = compute(monkeypatch, longer)
  assert more['cross_entropy'] == pytest.approx(expected, rel=1e-5)
  np.testing.assert_array_equal(best['firsts'], again['firsts'])


def test_rows_of_weight_0_change_nothing(monkeypatch):
  weights = {'label_weights': np.array([1.0, 0.0])}
  other = np.array([[3, 4], [4, 4]])
  found = [
    compute(monkeypatch, LOGITS, **weights, **x)[0]
    for x in ({}, {'labels': other})
  ]
  assert found[0] == found[1] and found[0]['cross_entropy'] > 0


def test_a_constant_is_the_commonest_answer_of_training_or_of_the_split():
  train = types.SimpleNamespace(answers=[('a',), ('a',), ('b',)])
  split = types.SimpleNamespace(
    answers=[('b',)] * 3 + [('a',)], count=lambda: 4
  )
  found = types.SimpleNamespace(threshold=None, scores=np.eye(4)[:, :2])
  scored = spans.TASK.compare((), (), split, found, train)
  assert scored['baseline'] == {'f1': 0.75, 'exact_match': 0.75}  # of b
  # As predict has it, which knows no training rows.
  assert spans.TASK.compare((), (), split, found, split) == scored


def read(c):
  """Returns the data of a config, and what is said about them."""
  data = training.read(spans.TASK, c, models.TOKENIZER)
  return data, data.manifest['read']


def make(tmp_path, rows, dev=None, unanswerable=False):
  c = make_config(tmp_path, unanswerable)
  folder = tmp_path / 'questions'
  write_squad(folder / 'train.json', rows)
  if dev is not None:
    write_squad(folder / 'dev.json', dev)
  return c


def test_wrong_places_of_answers_are_left_out_counted_and_said(tmp_path):
  rows = [
    ('a', 'dog', 'the dog', [('dog', 4)]),
    ('b', 'dog', 'the dog', [('dog', 3)]),
    ('c', 'dog', 'the dog', [('do', -3)]),
    ('d', 'dog', 'the\u200b dog', [('\u200b', 3)]),
  ]
  data, lines = read(make(tmp_path, rows, rows))
  train, dev = data.splits['train'], data.splits['dev']
  assert train.ids == ['a'] and dev.ids == ['a', 'b', 'c', 'd']
  assert dev.labels.tolist() == [[4, 4], [0, 0], [0, 0], [0, 0]]
  assert lines[0].startswith('train: 1 question (answers: 0 without), 4 pass')
  assert lines[1].startswith('WARNING: train: 2 questions whose answer ')
  assert 'answer_start says, left out; the first is question b' in lines[1]
  assert 'train: 1 question ' in lines[2] and 'is question d' in lines[2]
  with pytest.raises(errors.UserError, match='no answer is where answer_start'):
    read(make(tmp_path / 'again', rows[1:2]))


def test_the_second_answer_is_learnt_if_the_first_is_misplaced(tmp_path):
  rows = [
    ('a', 'dog', 'the dog', [('dog', 3), ('dog', 4)]),
    ('b', 'dog', 'the dog', [('dog', 4), ('dog', 3)]),
  ]
  data, lines = read(make(tmp_path, rows, rows))
  assert data.splits['train'].ids == ['a', 'b']
  assert data.splits['train'].labels.tolist() == [[4, 4], [4, 4]]
  assert 'first answer is misplaced, learnt from another; the fir' in lines[1]
  assert 'train: 1 question ' in lines[1] and 'is question a of' in lines[1]


@pytest.mark.parametrize(
  ('known', 'message'),
  [
    (True, "1 question of train without an answer, such as 'a'; "),
    (False, "1 question of train whose answers are not given, such as 'a'; on"),
  ],
)
def test_training_needs_answers(tmp_path, known, message):
  c, content = make_config(tmp_path), make_squad([('a', 'q', 'p', [])])
  if not known:
    [question] = content['data'][0]['paragraphs'][0]['qas']
    del question['answers'], question['is_impossible']
  path = tmp_path / 'questions' / 'train.json'
  path.write_text(json.dumps(content))
  with pytest.raises(errors.UserError, match=message):
    read(c)


@pytest.mark.parametrize('unanswerable', [False, True])
def test_a_test_file_with_empty_lists_of_answers_is_only_predicted(
  tmp_path, unanswerable
):
  c = make_config(tmp_path, unanswerable)
  path = tmp_path / 'questions' / 'test.json'
  content = make_squad([('a', 'dog', 'the dog', [])])
  del content['data'][0]['paragraphs'][0]['qas'][0]['is_impossible']
  path.write_text(json.dumps(content))
  data, lines = read(c)
  test = data.splits['test']
  assert test.ids == ['a'] and test.answers is None and test.labels is None
  assert 'test: 1 question (answers: unknown), 1 pass' in lines[-1]
  path.rename(tmp_path / 'questions' / 'dev.json')
  with pytest.raises(
    errors.UserError, match='1 question of dev whose answers are not'
  ):
    read(c)


PASSAGES = (
  ('Cafe\u0301 Zoe\u0308 was open.', 'Zoe\u0308'),
  ('2010年に京都は世界遺産になった。', '京都'),
  ('В 1812 году — Москва́ горела', 'Москва́'),
  ('It cost\u00a0US$\u200b1,500\x00 then', 'US$\u200b1,500'),
  ('ﬁve ﬂags in İstanbul', 'ﬁve'),
)
# Each character is a piece, as it is, and lower-cased and decomposed.
TEXT = ''.join(passage for passage, _ in PASSAGES)
CHARACTERS = sorted({*TEXT, *unicodedata.normalize('NFD', TEXT.lower())})
VOCAB = (*tokenizer.SPECIAL, *CHARACTERS, *(f'##{c}' for c in CHARACTERS))


@settings(deadline=None, max_examples=40)
@given(
  st.sampled_from(PASSAGES),
  st.text(max_size=8),
  st.sampled_from([' ', '\n', ' \t ']),
  st.booleans(),
  st.integers(1, 20),
)
def test_answers_are_recovered_from_the_tokens_of_their_windows(
  example, before, space, lowercase, stride
):
  passage, answer = example
  words = tokenizer.Tokenizer(VOCAB, lowercase)
  text = before + space + passage
  begin = len(before + space) + passage.index(answer)
  question = squad.Question('a', 'q', 0, ((answer, begin),))
  how = encode.How(words, 64, settings=classifier.Spans(stride, 4, 30, None))
  split, _ = span_windows.encode_questions(
    how, squad.Squad('', [question], passages=(text,))
  )
  shift = split.tokens - split.encoded.firsts
  found = {
    split.get_text(0, a + k, b + k)
    for (a, b), k in zip(split.labels, shift, strict=True)
    if a
  }
  assert found == {answer}


SETTINGS = classifier.Spans(2, 2, 3, None)
TEXT = 'The CAT, dog  the CAT'  # the cat [UNK] dog the cat


def make_split(answers=(('CAT', 4),)):
  """Returns two questions, of two windows (tokens 0 to 3, and 2 to 5) and one."""
  questions = [
    squad.Question('a', 'dog', 0, answers),
    squad.Question('b', 'cat', 1, answers and ()),
  ]
  content = squad.Squad('', questions, passages=(TEXT, 'é dog'))
  how = encode.How(models.TOKENIZER, 8, settings=SETTINGS)
  return span_windows.encode_questions(how, content)[0]


# `find_best` of both windows of the first question, which begin at position 3 of a
# row, and of the second's.
BEST = {
  'firsts': np.array([4, 6, 4]),
  'lasts': np.array([4, 6, 4]),
  'scores': np.array([(1, 2), (2, 2), (1, 1)], np.float32),
  'nulls': np.array([(1, 1), (0, 1), (2, 3)], np.float32),
}


@pytest.mark.parametrize(
  'threshold, expected',
  [
    (None, ['CAT', 'dog']),
    (2.9, ['CAT', '']),
    (3.0, ['CAT', 'dog']),  # not above
    (-4.0, ['', '']),
  ],
)
def test_the_best_of_all_windows_is_chosen_or_none(threshold, expected):
  settings = SETTINGS._replace(threshold=threshold)
  found = spans.choose(make_split(), BEST, settings)
  assert found.texts == expected and found.threshold == threshold
  assert found.odds.tolist() == [1 - 4, 5 - 2]  # of the smallest sum of [CLS]


def test_the_threshold_is_tuned_for_the_best_f1():
  settings = SETTINGS._replace(threshold=9.0)
  found = spans.choose(make_split(), BEST, settings, tune=True)
  assert found.threshold == 0  # the first is answered, the second is not
  assert found.texts == ['CAT', '']
  assert found.scores.mean(0).tolist() == [1, 1]


@pytest.mark.parametrize('wrong', [-np.inf, np.nan])
def test_a_passage_without_tokens_has_no_answer(wrong):
  best = BEST | {'scores': np.full((3, 2), wrong, np.float32)}
  found = spans.choose(make_split(), best, SETTINGS)
  assert found.texts == ['', ''] and found.odds.min() > 1e38
  scored = {'doubt': 0, 'metrics': {'f1': 1}, 'baseline': {'f1': 0}}
  assert 'all 2 predictions' in spans.TASK.find_problem(scored, found)


@pytest.mark.parametrize(
  ('answer', 'right', 'expected'),
  [
    ('The Broncos', 'broncos.', (1, 1)),
    ('Denver Broncos', 'the Broncos', (0, 2 / 3)),  # 2 * 1 / (2 + 1)
    ('a a cat cat', 'cat cat cat', (0, 0.8)),  # 2 * 2 / (2 + 3)
    ('Panthers', 'Broncos', (0, 0)),
    ('', 'Broncos', (0, 0)),
    ('', '', (1, 1)),
    # Of English, without spaces: all or nothing.
    ('北京市', '北京', (0, 0)),
    ('«Москва»', 'Москва', (0, 0)),  # its punctuation is not ASCII
    ('서울 시', '서울', (0, 2 / 3)),
  ],
)
def test_answers_are_compared_as_by_the_evaluation_scripts(
  answer, right, expected
):
  assert spans.compare_texts(answer, right) == pytest.approx(expected)


def test_the_most_similar_of_the_right_answers_counts():
  found = spans.score(
    ['red cat', 'red', '', ''],
    [('cat', 'the red cat', 'dog'), ('dog', 'red cat'), (), ('The', 'cat')],
  )
  np.testing.assert_allclose(found, [[1, 1], [0, 2 / 3], [1, 1], [0, 0]])


def count(threshold, odds, scores, answerable):
  """Returns the summed F1 of answering up to a threshold."""
  return sum(
    (score if known else 0.0) if odd <= threshold else float(not known)
    for odd, score, known in zip(odds, scores, answerable, strict=True)
  )


@settings(deadline=None)
@given(
  st.lists(
    st.tuples(
      st.integers(-5, 5), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()
    ),
    min_size=1,
    max_size=12,
  )
)
def test_no_threshold_is_better_than_the_one_found(rows):
  odds, scores, answerable = (np.array(x) for x in zip(*rows, strict=True))
  found = spans.find_threshold(odds, scores, answerable)
  best = max(
    count(x, odds, scores, answerable) for x in [*odds, odds.min() - 1]
  )
  assert count(found, odds, scores, answerable) == pytest.approx(best)


def test_published_predictions_have_their_published_scores():
  """Those of the ensemble that led SQuAD 1.1: EM 86.206, F1 92.196."""
  root = os.environ.get('BERT_JAX_TEST_DATA', '')
  given = os.path.join(root, 'squad', 'predictions', '1.1_BERT_ensemble.json')
  if not os.path.exists(given):
    pytest.skip('BERT_JAX_TEST_DATA has no squad/predictions')
  answers = json.loads(pathlib.Path(given).read_text())
  questions = squad.read(os.path.join(root, 'squad', 'dev-v1.1.json')).units
  scores = spans.score(
    [answers[x.id] for x in questions],
    [[text for text, _ in x.answers] for x in questions],
  )
  exact, f1 = 100 * scores.mean(0)
  assert (round(exact, 3), round(f1, 3)) == (86.206, 92.196)


def test_an_answer_has_the_characters_of_the_passage():
  best = BEST | {'firsts': np.array([3, 4, 3]), 'lasts': np.array([4, 6, 4])}
  texts = spans.choose(make_split(), best, SETTINGS).texts
  assert texts == ['dog  the CAT', 'é dog']
  best |= {'scores': np.array([(2, 2), (2, 2), (0, 0)], np.float32)}
  assert spans.choose(make_split(), best, SETTINGS).texts[0] == 'The CAT'
