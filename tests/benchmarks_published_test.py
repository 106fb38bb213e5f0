"""What benchmarks/published.py makes of estimates."""

import os
import sys

import pytest

sys.path.append(
  os.path.join(os.path.dirname(os.path.dirname(__file__)), 'benchmarks')
)
import published

from bert_jax import estimate


def test_the_paper_trained_a_million_batches_of_256_in_four_days():
  # 256e6 sequences in 345,600 s are 740.7 a second.
  assert published.paper(16) == pytest.approx(740.7 / 16, rel=1e-4)


def test_a_gpu_is_predicted_as_a_share_of_its_peak():
  low, _, high = published.predict(published.ROWS['a100-torch'], None)
  # 240.6 GFLOP a sequence, 25 % and 65 % of 312 TFLOP/s.
  assert low == pytest.approx(0.25 * 312e12 / 240.6e9, rel=2e-3)
  assert high == pytest.approx(0.65 * 312e12 / 240.6e9, rel=2e-3)


def test_lengths_count_by_their_share_of_the_updates(monkeypatch):
  seconds = {128: 1.0, 512: 3.0}
  monkeypatch.setattr(
    published,
    'step',
    lambda row, s, programs: estimate.Step(seconds[s], 2 * seconds[s], {}),
  )
  low, middle, high = published.predict(published.ROWS['paper-base'], None)
  # An update of 256 on 16 chips takes 0.9 x 1 s + 0.1 x 3 s = 1.2 s, or twice:
  # 16 sequences of a chip in 1.2 or 2.4 s.
  assert (low, middle, high) == pytest.approx((6.667, 10, 13.333), rel=1e-3)


@pytest.mark.parametrize(
  'middle, comparable, goal',
  [
    (125, True, 'met'),
    (74, True, 'MISSED'),
    (300, False, 'no goal'),
  ],
)
def test_the_goal_is_a_quarter_of_what_is_published(middle, comparable, goal):
  row = published.Row('base', {128: 1}, 'v4:2x2x1', 64, 100, comparable, 'x')
  assert f'| {goal} |' in published.line('name', row, (50, middle, 400))
