"""Tests of the data of a run on spans."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import errors
from bert_jax.finetuning import task_data
from bert_jax.finetuning.readers import squad
from bert_jax.finetuning.spans import span_data, span_windows
from bert_jax.model import classifier
from bert_jax.tokenization import offsets, tokenizer
from tests import models
from tests.finetuning.spans import answering_test

make_config, write_squad = (
  answering_test.make_config,
  answering_test.write_squad,
)


def make(tmp_path, rows, dev=None, **changes):
  c = make_config(tmp_path, **changes)
  folder = tmp_path / 'questions'
  write_squad(folder / 'train.json', rows)
  if dev is not None:
    write_squad(folder / 'dev.json', dev)
  return c, span_data.make(c, models.TOKENIZER)


def test_what_is_written_is_read(tmp_path):
  dev = [('x', 'cat', 'The \ud800CAT', [('CAT', 5)])]
  c, ours = make(tmp_path, [('a', 'dog', 'the dog', [('dog', 4)])], dev)
  folder = str(tmp_path / 'data')
  task_data.write(span_data.FORMAT, c, folder, models.TOKENIZER)
  found = task_data.read(span_data.FORMAT, folder)
  for name, split in ours.splits.items():
    again = found.splits[name]
    models.assert_same(again.windows, split.windows)
    models.assert_same(again.located, split.located)
    for field in ('ids', 'answers', 'passages'):
      assert getattr(again, field) == getattr(split, field)
    assert again.labels.tolist() == split.labels.tolist() == [[4, 4]]
    assert again.passage_of.tolist() == split.passage_of.tolist() == [0]
  assert found.labels == ('start', 'end') and found.pad_id == 0


def test_wrong_places_of_answers_are_left_out_counted_and_said(tmp_path):
  rows = [
    ('a', 'dog', 'the dog', [('dog', 4)]),
    ('b', 'dog', 'the dog', [('dog', 3)]),
    ('c', 'dog', 'the dog', [('do', -3)]),
    ('d', 'dog', 'the\u200b dog', [('\u200b', 3)]),
  ]
  c, data = make(tmp_path, rows, rows)
  train, dev = data.splits['train'], data.splits['dev']
  assert train.ids == ['a'] and dev.ids == ['a', 'b', 'c', 'd']
  assert dev.labels.tolist() == [[4, 4], [0, 0], [0, 0], [0, 0]]
  facts = data.manifest['splits']['train']
  assert facts['wrong_start'] == {'count': 2, 'first': 'b'}
  assert facts['not_found'] == {'count': 1, 'first': 'd'}
  lines = span_data.describe(data.manifest)
  assert lines[0].startswith('train: 1 question about 4 passages, 1 window of')
  assert 'WARNING: 2 questions' in lines[1]
  assert "answer_start says, left out; the first is 'b'" in lines[1]
  with pytest.raises(errors.UserError, match='no answer is where answer_start'):
    make(tmp_path / 'again', rows[1:2])


@pytest.mark.parametrize(
  ('rows', 'message'),
  [
    (
      [('a', 'q', 'p', [])],
      "1 question of train without an answer, such as 'a'; ",
    ),
    (
      [('a', 'q', 'p', None)],
      "answers to 1 question of train are not given, such as that to 'a'",
    ),
  ],
)
def test_training_needs_answers(tmp_path, rows, message):
  c = make_config(tmp_path)
  path = tmp_path / 'questions' / 'train.json'
  content = answering_test.make_squad(
    [(*row[:3], row[3] or []) for row in rows]
  )
  if rows[0][3] is None:
    [question] = content['data'][0]['paragraphs'][0]['qas']
    del question['answers'], question['is_impossible']
  path.write_text(json.dumps(content))
  with pytest.raises(errors.UserError, match=message):
    span_data.make(c, models.TOKENIZER)


def test_questions_without_an_answer_are_labelled_cls(tmp_path):
  rows = [('a', 'q', 'the dog', []), ('b', 'q', 'the dog', [('dog', 4)])]
  _, data = make(tmp_path, rows, unanswerable=True)
  assert data.splits['train'].labels.tolist() == [[0, 0], [4, 4]]
  facts = data.manifest['splits']['train']
  assert (facts['questions'], facts['unanswerable']) == (2, 1)
  assert (
    ', 1 of them without an answer,' in span_data.describe(data.manifest)[0]
  )


@pytest.mark.parametrize('unanswerable', [False, True])
def test_a_test_file_with_empty_lists_of_answers_is_only_predicted(
  tmp_path, unanswerable
):
  c = make_config(tmp_path, unanswerable)
  path = tmp_path / 'questions' / 'test.json'
  content = answering_test.make_squad([('a', 'dog', 'the dog', [])])
  del content['data'][0]['paragraphs'][0]['qas'][0]['is_impossible']
  path.write_text(json.dumps(content))
  data = span_data.make(c, models.TOKENIZER)
  test = data.splits['test']
  assert test.ids == ['a'] and test.answers is None and test.labels is None
  assert data.manifest['splits']['test']['unanswerable'] is None
  lines = span_data.describe(data.manifest)
  assert 'whose answers are not known, about 1 pass' in lines[-1]
  path.rename(tmp_path / 'questions' / 'dev.json')
  span_data.FORMAT.forget()
  with pytest.raises(
    errors.UserError, match='to 1 question of dev are not given'
  ):
    span_data.make(c, models.TOKENIZER)


def test_without_a_dev_file_passages_are_held_out(tmp_path):
  c = make_config(tmp_path)
  (tmp_path / 'questions' / 'dev.json').unlink()
  c.data.heldout = 0.5
  data = span_data.make(c, models.TOKENIZER)
  train, dev = data.splits['train'], data.splits['dev']
  assert dev.ids and train.ids and not set(dev.ids) & set(train.ids)
  assert not set(dev.passages) & set(train.passages)


def test_questions_that_are_training_ones_are_counted(tmp_path):
  c = make_config(tmp_path)
  c.data.input = ','.join(
    f'{x}={tmp_path}/questions/train.json' for x in ('train', 'dev')
  )
  facts = span_data.make(c, models.TOKENIZER).manifest['splits']
  assert facts['dev']['repeated']['count'] == facts['dev']['questions']
  assert facts['train']['repeated']['count'] == 0


# (passage, answer) as they stand in files of several languages.
PASSAGES = (
  ('The Café, in São Paulo.', 'São Paulo'),
  ('Cafe\u0301 Zoe\u0308 was open.', 'Zoe\u0308'),
  ('2010年に京都は世界遺産になった。', '京都'),
  ('京都は古都である。', '古都'),
  ('서울은 대한민국의 수도이다.', '대한민국'),
  ('В 1812 году — Москва́ горела', 'Москва́'),
  ('القاهرة عاصمة مِصْر الحديثة', 'مِصْر'),
  ('भारत की राजधानी नई दिल्ली है।', 'नई दिल्ली'),
  ('It cost\u00a0US$\u200b1,500\x00 then', 'US$\u200b1,500'),
  ('ﬁve ﬂags', 'ﬁve'),
  ('İstanbul is large', 'İstanbul'),
)


# Each character is a piece, as it is, and lower-cased and decomposed.
CHARACTERS = sorted(
  {c for passage, _ in PASSAGES for c in passage}
  | {
    c
    for passage, _ in PASSAGES
    for c in unicodedata.normalize('NFD', passage.lower())
  }
)
VOCAB = (*tokenizer.SPECIAL, *CHARACTERS, *(f'##{c}' for c in CHARACTERS))


@settings(deadline=None)
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
  content, located = (
    squad.Squad('', [text], [question]),
    offsets.locate(words, [text]),
  )
  settings = classifier.Spans(stride, 4, 30, None)
  split = span_data.encode_questions(words, content, located, 64, settings)
  spans, _ = span_data.find_spans(content, located)
  made = split.windows
  labels = span_windows.label(made, spans)
  shift = made.tokens - made.encoded.firsts
  found = {
    text[located[0].begins[a + k] : located[0].ends[b + k]]
    for (a, b), k in zip(labels, shift, strict=True)
    if a
  }
  assert found == {answer}
