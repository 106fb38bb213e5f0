"""Tests of counting and scoring entities."""

import tracemalloc

import numpy as np
import pytest

from bert_jax.finetuning import tags


@pytest.mark.parametrize(
  'text, expected',
  [
    ('O O', []),
    ('B-A I-A O B-A', [(0, 2, 'A'), (3, 4, 'A')]),
    ('B-A B-A', [(0, 1, 'A'), (1, 2, 'A')]),
    # conlleval: an I- of another kind, or after O, begins an entity.
    ('I-A I-A I-B', [(0, 2, 'A'), (2, 3, 'B')]),
    ('B-A I-B I-A', [(0, 1, 'A'), (1, 2, 'B'), (2, 3, 'A')]),
    ('', []),
  ],
)
def test_entities_are_those_of_conlleval(text, expected):
  assert sorted(tags.find_entities(text.split())) == expected


def count(truth, predicted):
  return tags.count_entities(
    *([x.split() for x in y] for y in (truth, predicted))
  )


def test_an_entity_counts_if_its_words_and_its_kind_are_right():
  counts = count(
    ['B-A I-A O B-B', 'B-A O O O'], ['B-A I-A O B-A', 'B-A I-A O O']
  )
  # Found, predicted, there; of each sentence.
  assert counts['A'].tolist() == [[1, 2, 1], [0, 1, 1]]
  assert counts['B'].tolist() == [[0, 0, 1], [0, 0, 0]]
  found = tags.score_entities(sum(counts.values()))
  assert found == {
    'f1': pytest.approx(2 / 6),
    'precision': pytest.approx(1 / 3),
    'recall': pytest.approx(1 / 3),
  }


def test_nothing_found_is_0():
  assert tags.score_entities(count(['B-A'], ['O'])['A'])['f1'] == 0
  assert tags.score_entities(np.zeros((2, 3), int))['f1'] == 0


def test_each_score_is_in_its_interval():
  rows = np.tile([[1, 1, 1], [0, 1, 1], [1, 2, 1], [1, 1, 3]], (20, 1))
  found = tags.compare_entities(rows)
  intervals, scores = found['intervals'], tags.score_entities(rows)
  assert intervals.keys() == scores.keys() == {'f1', 'precision', 'recall'}
  for name, (low, high) in intervals.items():
    assert low < scores[name] < high, name
    assert 0.05 < high - low < 0.25, name


def test_ten_entities_are_never_certain():
  # Wilson's interval of 10 of 10 begins at 0.722.
  right = np.tile([1, 1, 1], (10, 1))
  for low, high in tags.compare_entities(right)['intervals'].values():
    assert (low, high) == pytest.approx((0.72246, 1), abs=1e-5)
  found = tags.compare_entities(right * [0, 1, 1])['intervals']
  assert found['f1'] == pytest.approx([0, 0.27754], abs=1e-5)
  assert tags.compare_entities(right * [0, 0, 1])['intervals']['precision'] == [
    0,
    1,
  ]


def test_a_single_entity_among_many_is_hardly_better_than_none():
  rows = np.tile([0, 1, 1], (50, 1))
  rows[0] = 1
  assert tags.compare_entities(rows)['doubt'] == pytest.approx(
    1 / np.e, abs=0.05
  )
  rows[:20] = 1
  assert tags.compare_entities(rows)['doubt'] == 0


def test_intervals_do_not_hold_all_resamples_at_a_time():
  rows = np.tile([[1, 1, 1], [0, 1, 1]], (10_000, 1))
  tracemalloc.start()
  tags.compare_entities(rows)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 10e6  # 160 MB for a thousand of them
