"""What benchmarks/tpu/published.py makes of estimates."""

import published
import pytest

from bert_jax.preflight import estimate


def test_the_paper_trained_a_million_batches_of_256_in_four_days():
  # 256e6 sequences in 345,600 s are 740.7 a second.
  assert published.paper(16) == pytest.approx(740.7 / 16, rel=1e-4)


def test_a_gpu_is_predicted_as_a_share_of_its_peak():
  low, middle, high = published.predict(published.ROWS['a100-torch'], None)
  # 240.6 GFLOP a sequence, 25, 45 and 65 % of 312 TFLOP/s.
  assert low == pytest.approx(0.25 * 312e12 / 240.6e9, rel=2e-3)
  assert middle == pytest.approx(0.45 * 312e12 / 240.6e9, rel=2e-3)
  assert high == pytest.approx(0.65 * 312e12 / 240.6e9, rel=2e-3)


def test_lengths_count_by_their_share_of_the_updates(monkeypatch):
  seconds = {128: 1.0, 512: 3.0}
  monkeypatch.setattr(
    published,
    'step',
    lambda row, s, programs: estimate.Step(
      1.5 * seconds[s], seconds[s], 2 * seconds[s], {}
    ),
  )
  found = published.predict(published.ROWS['paper-base'], None)
  # An update of 256 on 16 chips takes 0.9 x 1 s + 0.1 x 3 s = 1.2 s at best:
  # 16 sequences of a chip in 1.2, 1.8 or 2.4 s.
  assert found == pytest.approx((6.667, 8.889, 13.333), rel=1e-3)


@pytest.mark.parametrize(
  'speed, comparable, said',
  [
    (60, True, 'yes'),
    (49, True, 'NO'),
    (101, True, 'NO'),
    (101, False, 'no, not comparable'),
    (60, False, 'yes, not comparable'),
  ],
)
def test_comparable_rows_must_lie_inside(speed, comparable, said):
  row = published.Row('base', {128: 1}, 'v4:2x2x1', 64, speed, comparable, 'x')
  line = published.line('name', row, (50, 75, 100))
  assert f'| {said} |' in line
  assert '| 50.0 to 100.0 | 2.0 | 75.0 |' in line


def test_a_row_outside_ends_with_1(monkeypatch, capsys):
  monkeypatch.setattr(published, 'predict', lambda row, _: (1.0, 2.0, 3.0))
  assert not published.show(['v3'], None)
  assert '| 66.6 |' in capsys.readouterr().out
