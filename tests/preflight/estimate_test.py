"""The arithmetic of estimates, with numbers to check by hand."""

import dataclasses

import pytest

from bert_jax.hardware import accelerators, chips
from bert_jax.preflight import estimate
from bert_jax.trainer import task

# 100 bytes/s of memory, 4 links of 5 bytes/s each way, 2 bytes/s between slices.
CHIP = chips.Chip(
  *('v5e', ('X',), 1000.0, 100.0, 40.0), links=4, network_bandwidth=2.0
)
PAIR = dataclasses.replace(CHIP, name='v3', devices=2)
GPU = dataclasses.replace(chips.get('h100'), link_bandwidth=20.0)


def slices_of(chip, *bounds, slices=1):
  return accelerators.Topology('x', chip, bounds, slices, 1, {})


def test_a_step_is_between_a_share_of_the_peak_with_and_without_overlap():
  others = {'optimizer': 1.0, 'collectives': 3.0}
  found = estimate.estimate_step(800.0, 200.0, (0.5, 0.8), 'why', others)
  # 4 s at the peak: 5 s beside the collectives, or 8 s before them.
  assert found == {
    'step_seconds_estimate': [5 + 1, 8 + 1 + 3],
    'step_seconds_parts': {'computation at peak': 4.0, **others},
    'step_seconds_range': 'why',
    'utilisation_estimate': [4 / 12, 4 / 6],
  }
  others['collectives'] = 7.0  # more than the computation hides
  found = estimate.estimate_step(800.0, 200.0, (0.5, 0.8), 'why', others)
  assert found['step_seconds_estimate'] == [7 + 1, 8 + 1 + 7]


def test_a_gpu_reaches_a_quarter_to_two_thirds_of_its_peak():
  shares, why = estimate.list_shares(GPU, 512, 128, 512)
  assert (shares, why) == ((0.25, 0.65), '25% to 65% of the peak')


def test_a_tpu_reaches_a_part_of_what_products_of_that_size_reach():
  chip = chips.get('tpu7x')
  # 2048 x 1024 x 4096 take as many FLOPs as a cube of 2048: 679 of 1,153.5.
  shares, why = estimate.list_shares(chip, 2048, 1024, 4096)
  alone = 679.3 / 1153.5
  assert shares == pytest.approx((0.33 * alone, 0.7 * alone))
  assert why == (
    '19% to 41% of the peak, 0.33 to 0.7 x the 59% that products of this size '
    'reach by measurements on this chip'
  )
  _, why = estimate.list_shares(chips.get('v5e'), 99, 99, 99)
  assert ', 0.5 to 0.85 x' in why and why.endswith('on TPU7x')


def test_the_update_moves_state_gradient_and_parameters():
  # State in and out, gradient in: 2 x 30 + 10 bytes at 100 or 50 bytes/s.
  assert estimate.time_update(10, 30, CHIP) == pytest.approx(0.7)
  assert estimate.time_update(10, 30, PAIR) == pytest.approx(1.4)


@pytest.mark.parametrize(
  'where, seconds',
  [
    (slices_of(CHIP, 1, 1), 0.0),
    # Two neighbours in a 2x2, no ring: 3/4 of 80 bytes at 2 x 5 bytes/s.
    (slices_of(CHIP, 2, 2), 6.0),
    (slices_of(CHIP, 1, 2), 8.0),
    # A ring of 16 has both links of its axis: 255/256 of 80 bytes at 20.
    (slices_of(CHIP, 16, 16), 4.0 * 255 / 256),
    # Devices of a chip share its links: v3 has no ring, either.
    (slices_of(PAIR, 2, 2), 6.0),
    # Of each chip's 20 bytes, half goes to the other slice at 2 bytes/s.
    (slices_of(CHIP, 2, 2, slices=2), 6.0 + 5.0),
    # GPUs: 10 bytes/s each way, hosts linked as one.
    (slices_of(GPU, 1), 0.0),
    (slices_of(GPU, 4), 6.0),
    (slices_of(GPU, 2, slices=2), 6.0),
  ],
)
def test_collectives_have_the_links_of_a_chip(where, seconds):
  assert estimate.time_collectives(80, where) == pytest.approx(seconds)


def test_run_adds_the_phases_and_counts_chips_and_dollars():
  found = estimate.estimate_run(
    [(3600, (1.0, 2.0)), (900, (4.0, 5.0))], 16, 1.5
  )
  assert found == {
    'hours': (2.0, 3.25),
    'chip_hours': (32.0, 52.0),
    'dollars': (48.0, 78.0),
  }
  unknown = estimate.estimate_run([(1, (1.0, 2.0))], 16, None)
  assert unknown['dollars'] is None


@pytest.mark.parametrize(
  'needed, fixed, largest, accumulate',
  [
    # 4 devices of 8 rows: 30 + 8 x 5 = 70 of 100 bytes.
    (70, 30, 14 * 4, 1),
    # 30 + 8 x 20 = 190 of 100; in 4 parts 30 + 20 + 2 x 20.
    (190, 30, 3 * 4, 4),
    # A batch smaller than the gradients tells nothing of larger ones.
    (25, 30, None, 1),
    # No accumulation helps a model that is too large.
    (190, 110, 0, None),
  ],
)
def test_batches_that_fit_follow_the_memory(needed, fixed, largest, accumulate):
  phase = task.Phase(
    0, 0, 9, 128, batch_size=32, accumulate=1, max_predictions=20
  )
  found = estimate.estimate_batch(needed, fixed, 100, 20, phase, 4)
  assert found == {
    'largest_batch_estimate': largest,
    'accumulate_that_fits_estimate': accumulate,
  }
