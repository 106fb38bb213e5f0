"""Tests of the scores of answers."""

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.finetuning.readers import squad
from bert_jax.finetuning.spans import span_metrics


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
  assert span_metrics.compare(answer, right) == pytest.approx(expected)


def test_the_most_similar_of_the_right_answers_counts():
  found = span_metrics.score(
    ['red cat', 'red', ''],
    [('cat', 'the red cat', 'dog'), ('dog', 'red cat'), ()],
  )
  np.testing.assert_allclose(found, [[1, 1], [0, 2 / 3], [1, 1]])


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
  found = span_metrics.find_threshold(odds, scores, answerable)
  best = max(
    count(x, odds, scores, answerable) for x in [*odds, odds.min() - 1]
  )
  assert count(found, odds, scores, answerable) == pytest.approx(best)


def test_a_threshold_is_the_lowest_of_the_best():
  odds = np.array([-3.0, -1.0, 2.0, 2.0])
  found = span_metrics.find_threshold(
    odds, np.array([1.0, 0.0, 0.5, 0.0]), np.array([True, False, True, False])
  )
  assert found == -3  # 1 right, and 2 without an answer
  none = span_metrics.find_threshold(odds, np.zeros(4), np.zeros(4, bool))
  assert none < -3


def test_published_predictions_have_their_published_scores():
  """Those of the ensemble that led SQuAD 1.1: EM 86.206, F1 92.196."""
  root = os.environ.get('BERT_JAX_TEST_DATA', '')
  given = os.path.join(root, 'squad', 'predictions', '1.1_BERT_ensemble.json')
  if not os.path.exists(given):
    pytest.skip('BERT_JAX_TEST_DATA has no squad/predictions')
  with open(given, encoding='utf-8') as file:
    answers = json.load(file)
  questions = squad.read(os.path.join(root, 'squad', 'dev-v1.1.json')).questions
  scores = span_metrics.score(
    [answers[x.id] for x in questions],
    [[text for text, _ in x.answers] for x in questions],
  )
  exact, f1 = 100 * scores.mean(0)
  assert (round(exact, 3), round(f1, 3)) == (86.206, 92.196)
