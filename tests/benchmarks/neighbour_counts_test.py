"""Probabilities from counts of neighbours."""

import neighbour_counts
import numpy as np
import pytest

HIDDEN = neighbour_counts._HIDDEN


def test_counts_are_discounted_and_the_rest_goes_to_what_is_below():
  counts = neighbour_counts.Counts(contexts=2, size=4)
  counts.add(np.array([0, 0, 0]), np.array([3, 1, 3]))
  counts.add(np.array([0, 0, 0]), np.array([3, 1, 3]))
  counts.finish(passes=2)  # in one pass, 3 twice and 1 once
  lower = np.array([0.4, 0.3, 0.2, 0.1])

  def of(context):
    return counts.back_off(np.full(4, context), np.arange(4), lower, 0.5)

  seen = np.array([0, 0.5, 0, 1.5]) / 3 + lower / 3
  np.testing.assert_allclose(of(0), seen)
  assert of(0).sum() == pytest.approx(1)
  for context in (1, HIDDEN):  # never seen; to be predicted
    np.testing.assert_allclose(of(context), lower)


def test_the_mean_is_of_the_neighbours_that_are_shown():
  frequency = np.array([2.0, 1, 0, 0])  # with one more of each: 3, 2, 1, 1
  left, right, between = (neighbour_counts.Counts(4, 4) for _ in range(3))
  left.add(np.array([1]), np.array([2]))
  right.add(np.array([3]), np.array([0]))
  between.add(np.array([0]), np.array([2]))
  for counts in (left, right, between):
    counts.finish(1)
  targets = {
    'left': np.array([1, 1, HIDDEN, HIDDEN]),
    'right': np.array([3, HIDDEN, 3, HIDDEN]),
  }
  counted = frequency, left, right, between, np.array([0, -1, -1, -1])
  found = neighbour_counts.compute_probabilities(
    np.array([2, 2, 2, 2]), targets, counted, (0.5, 0.8)
  )
  unigram = 1 / 7
  by_left, by_right = 0.5 + unigram / 2, unigram / 2
  either = (by_left + by_right) / 2
  np.testing.assert_allclose(found['unigram'], [unigram] * 4)
  np.testing.assert_allclose(
    found['either'], [either, by_left, by_right, unigram]
  )
  np.testing.assert_allclose(
    found['window'], [0.2 + 0.8 * either, by_left, by_right, unigram]
  )


def test_a_token_that_is_shown_was_probably_kept():
  """A token of share 1/2 among 10, of which a tenth is kept."""
  targets = {'token': np.array([7, 7, 7]), 'shown': np.array([4, 7, 8])}
  own, shown = np.array([0.5] * 3), np.array([0.1, 0.5, 0.5])
  found = neighbour_counts.use_shown(
    own, shown, targets, (0.8, 0.1, 0.1), size=10, mask_id=4
  )
  # p(7 shown | 7) = 0.1 + 0.01; p(7 shown) = 0.1 / 2 + 0.01.
  np.testing.assert_allclose(found, [0.5, 0.5 * 0.11 / 0.06, 0.5 * 0.01 / 0.06])
