"""Tests of answers: which are chosen, and how they are scored."""

import json
import os
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.finetuning import encode, span_answers, span_windows
from bert_jax.finetuning.readers import squad
from bert_jax.model import classifier
from tests import models

SETTINGS = classifier.Spans(2, 2, 3, None)
TEXT = 'The CAT, dog  the CAT'  # the cat [UNK] dog the cat
OUT = -np.inf


def make_split(answers=(('CAT', 4),)):
  """Returns two questions, of two windows (tokens 0 to 3, and 2 to 5) and one."""
  questions = [
    squad.Question('a', 'dog', 0, answers),
    squad.Question('b', 'cat', 1, answers and ()),
  ]
  content = squad.Squad('', questions, passages=(TEXT, 'é dog'))
  how = encode.How(models.TOKENIZER, 8, settings=SETTINGS)
  return span_windows.encode_questions(how, content)[0]


def make_ranked(rows):
  """Returns `span_answers.rank` of rows ([(first, last, scores)], null)."""
  return {
    'firsts': np.array([[x[0] for x in row] for row, _ in rows]),
    'lasts': np.array([[x[1] for x in row] for row, _ in rows]),
    'scores': np.array([[x[2] for x in row] for row, _ in rows], np.float32),
    'nulls': np.array([null for _, null in rows], np.float32),
  }


# The window begins at position 3 of a row.
RANKED = make_ranked(
  [
    ([(4, 4, (1, 2)), (3, 4, (0, 2)), (6, 6, (OUT, 0))], (1, 1)),
    ([(6, 6, (2, 2)), (4, 6, (1, 0)), (3, 3, (0, 0))], (0, 1)),
    ([(4, 4, (1, 1)), (3, 4, (0, 1)), (0, 0, (OUT, np.nan))], (2, 3)),
  ]
)


def test_answers_are_characters_of_the_passage_and_come_from_all_windows():
  one, two = span_answers.list_candidates(make_split(), RANKED)
  # CAT of the second window scores 4, that of the first 3.
  assert one.texts == ['CAT', 'The CAT', 'dog  the CAT', ',']
  assert one.scores.tolist() == [[2, 2], [0, 2], [1, 0], [0, 0]]
  assert one.null.tolist() == [0, 1]  # the smaller sum
  assert two.texts == ['dog', 'é dog'] and two.null.tolist() == [2, 3]
  assert (one.odds, two.odds) == (1 - 4, 5 - 2)


def test_no_answer_is_chosen_above_the_threshold():
  for threshold, expected in (
    (None, ['CAT', 'dog']),
    (2.9, ['CAT', '']),
    (3.0, ['CAT', 'dog']),  # not above
    (-4.0, ['', '']),
  ):
    settings = SETTINGS._replace(threshold=threshold)
    found = span_answers.choose(make_split(), RANKED, settings)
    assert found.texts == expected and found.threshold == threshold


def test_the_threshold_is_tuned_for_the_best_f1():
  settings = SETTINGS._replace(threshold=9.0)
  found = span_answers.choose(make_split(), RANKED, settings, tune=True)
  assert found.threshold == -3  # the first is answered, the second is not
  assert found.texts == ['CAT', '']
  assert found.scores.mean(0).tolist() == [1, 1]


def test_answers_that_are_not_known_have_no_score():
  found = span_answers.choose(make_split(None), RANKED, SETTINGS)
  assert found.scores is None and found.texts == ['CAT', 'dog']


def test_a_passage_without_tokens_has_no_answer():
  nothing = span_answers.Candidates([], np.zeros((0, 2)), np.array([1.0, 2.0]))
  assert nothing.odds > 1e38
  [best] = span_answers.list_best(nothing, unanswerable=False)
  assert (best['text'], best['probability']) == ('', 1)


def test_the_best_answers_have_probabilities_and_may_be_none():
  one, two = span_answers.list_candidates(make_split(), RANKED)
  assert [x['text'] for x in span_answers.list_best(one, False)] == one.texts
  best = span_answers.list_best(two, True)
  assert [x['text'] for x in best] == ['', 'dog', 'é dog']
  assert (best[0]['start_logit'], best[0]['end_logit']) == (2, 3)
  likely = np.exp([5, 2, 1]) / np.exp([5, 2, 1]).sum()
  assert [x['probability'] for x in best] == pytest.approx(likely)


def test_a_constant_is_the_commonest_answer_or_none():
  answers = [('a',), ('b', 'a'), ('b',)]
  assert span_answers.predict_constant(answers, unanswerable=False) == 'b'
  assert span_answers.predict_constant(answers, unanswerable=True) == ''
  answers = [(), ('a',), ('a',)]
  assert span_answers.predict_constant(answers, unanswerable=False) == 'a'


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
  assert span_answers.compare_texts(answer, right) == pytest.approx(expected)


def test_the_most_similar_of_the_right_answers_counts():
  found = span_answers.score(
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
  found = span_answers.find_threshold(odds, scores, answerable)
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
  scores = span_answers.score(
    [answers[x.id] for x in questions],
    [[text for text, _ in x.answers] for x in questions],
  )
  exact, f1 = 100 * scores.mean(0)
  assert (round(exact, 3), round(f1, 3)) == (86.206, 92.196)
