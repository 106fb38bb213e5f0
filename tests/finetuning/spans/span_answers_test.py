"""Tests of choosing answers among the likeliest spans of windows."""

import numpy as np
import pytest

from bert_jax.finetuning.readers import squad
from bert_jax.finetuning.spans import span_answers, span_data
from bert_jax.model import classifier
from bert_jax.tokenization import offsets
from tests import models

SETTINGS = classifier.Spans(2, 2, 3, None)
TEXT = 'The CAT, dog  the CAT'  # the cat [UNK] dog the cat
OUT = -np.inf


def make_split(answers=(('CAT', 4),)):
  """Returns two questions, of two windows (tokens 0 to 3, and 2 to 5) and one."""
  content = squad.Squad(
    '',
    [TEXT, 'é dog'],
    [
      squad.Question('a', 'dog', 0, answers),
      squad.Question('b', 'cat', 1, answers and ()),
    ],
  )
  located = offsets.locate(models.TOKENIZER, content.passages)
  return span_data.encode_questions(
    models.TOKENIZER, content, located, 8, SETTINGS
  )


def make_ranked(rows):
  """Returns `answering.rank` of rows ([(first, last, scores)], null)."""
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
  assert span_answers.summarise(found.scores) == {'f1': 1, 'exact_match': 1}


def test_answers_that_are_not_known_have_no_score():
  found = span_answers.choose(make_split(None), RANKED, SETTINGS)
  assert found.scores is None and found.texts == ['CAT', 'dog']


def test_a_passage_without_tokens_has_no_answer():
  nothing = span_answers.Candidates([], np.zeros((0, 2)), np.array([1.0, 2.0]))
  assert span_answers.take_best([nothing], None) == ['']
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
  split = make_split()._replace(answers=[('a',), ('b', 'a'), ('b',)])
  assert span_answers.predict_constant(split, unanswerable=False) == 'b'
  assert span_answers.predict_constant(split, unanswerable=True) == ''


def test_intervals_are_those_of_a_mean():
  scores = np.array([[1.0, 1.0], [0.0, 0.5]] * 200)
  scored = span_answers.compare(scores, np.zeros((400, 2)))
  assert scored['metrics'] == {'f1': 0.75, 'exact_match': 0.5}
  assert scored['doubt'] == 0
  found = scored['intervals']
  low, high = found['exact_match']
  # 0.5 give or take 1.96 * 0.5 / 20
  assert (low, high) == pytest.approx((0.451, 0.549), abs=0.01)
  # As wide as that of a share, though half of the rows have 0.5: 1.96 * 0.433 / 20
  low, high = found['f1']
  assert (low, high) == pytest.approx((0.7053, 0.7899), abs=0.01)
  # Twenty right answers are not certain, nor is what a constant gets, too.
  right = np.ones((20, 2))
  scored = span_answers.compare(right, right)
  for low, high in scored['intervals'].values():
    assert (low, high) == pytest.approx((0.8389, 1), abs=1e-4)
  assert scored['doubt'] == 1
