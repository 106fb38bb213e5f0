"""The arithmetic of estimates, with numbers to check by hand."""

import dataclasses

import pytest

from bert_jax import chips, estimate, hlo

# 1 GHz, 100 bytes/s of memory, 40 bytes/s of links (20 each way), 80 FLOPs/s of
# a large product.
CHIP = chips.Chip(
  *('x', ('X',), 1000.0, 100.0, 40.0),
  product_cycles=2 * 8192**3 * 1e9 / 80,
  clock=1e9,
)


def test_step_is_a_range_from_hidden_to_added_collectives():
  cost = hlo.Cost(
    cycles=2e9,
    rng_bytes=100,
    kernel_bytes={'k': 200},
    moved_bytes=300,
    sent_bytes=80,
  )
  found = estimate.tpu_step(cost, CHIP)
  assert found.parts == {
    'computation': 2.0,
    'random bits': 1.0,
    'kernels': 2.0,
    'gathers and scatters': 3.0,
    'collectives': 4.0,
  }
  assert (found.low, found.high) == (8.0, 12.0)


def test_each_kernel_is_bound_by_its_flops_or_its_bytes():
  cost = hlo.Cost(
    kernel_flops={'wide': 400, 'long': 40},
    kernel_bytes={'wide': 100, 'long': 300},
  )
  # 400 FLOPs at 40/s against 100 bytes at 100/s; 40 against 300.
  found = estimate.tpu_step(cost, CHIP).parts['kernels']
  assert found == pytest.approx(10.0 + 3.0)


def test_utilisation_of_cycles_is_one_for_a_large_product():
  seconds = CHIP.product_cycles / CHIP.clock
  flops = 2 * 8192**3
  assert estimate.cycle_utilisation(flops, seconds, CHIP) == pytest.approx(1)
  assert estimate.cycle_utilisation(30, 1.0, CHIP) == pytest.approx(3 / 8)


def test_collectives_that_take_longest_are_the_lower_end():
  found = estimate.tpu_step(hlo.Cost(cycles=1e9, sent_bytes=200), CHIP)
  assert (found.low, found.high) == (10.0, 11.0)


def test_devices_of_a_chip_share_its_memory_and_links():
  pair = dataclasses.replace(CHIP, devices=2)
  found = estimate.tpu_step(hlo.Cost(rng_bytes=100, sent_bytes=80), pair)
  assert found.parts['random bits'] == 2.0
  assert found.parts['collectives'] == 8.0


def test_links_without_a_figure_are_left_out():
  alone = dataclasses.replace(CHIP, link_bandwidth=None)
  found = estimate.tpu_step(hlo.Cost(cycles=1e9, sent_bytes=80), alone)
  assert 'collectives' not in found.parts
  assert found.low == found.high == 1.0


def test_gpu_step_is_a_share_of_the_peak():
  found = estimate.gpu_step(8000.0, CHIP, 8)
  assert found.parts == {'computation at peak': 1.0}
  assert found.low == pytest.approx(1 / 0.65)
  assert found.high == 4.0
  assert estimate.utilisation(8000.0, found, CHIP, 8) == pytest.approx(
    (0.25, 0.65)
  )


def test_run_adds_the_phases_and_counts_chips_and_dollars():
  found = estimate.run([(3600, (1.0, 2.0)), (900, (4.0, 5.0))], 16, 1.5)
  assert found.hours == (2.0, 3.25)
  assert found.chip_hours == (32.0, 52.0)
  assert found.dollars == (48.0, 78.0)
  assert estimate.run([(1, (1.0, 2.0))], 16, None).dollars is None


def test_largest_batch_and_accumulation_follow_the_memory():
  # 4 devices of 8 rows: 10 + 20 + 8 x 5 = 70 of 100 bytes.
  found = estimate.batch(
    *(70, 10, 20, 100), sums=20, batch_size=32, accumulate=1, shares=4
  )
  assert found == estimate.Batch(largest=14 * 4, accumulate=1)


def test_what_does_not_fit_needs_micro_batches():
  # 10 + 20 + 8 x 20 = 190 of 100 bytes; in 4 parts 10 + 2 x 20 + 2 x 20.
  found = estimate.batch(
    *(190, 10, 20, 100), sums=20, batch_size=32, accumulate=1, shares=4
  )
  assert found == estimate.Batch(largest=3 * 4, accumulate=4)


def test_a_batch_smaller_than_the_gradients_tells_nothing_of_larger_ones():
  found = estimate.batch(
    *(25, 10, 20, 100), sums=20, batch_size=32, accumulate=1, shares=4
  )
  assert found == estimate.Batch(largest=None, accumulate=1)


def test_no_accumulation_helps_a_model_that_is_too_large():
  found = estimate.batch(
    *(190, 90, 20, 100), sums=20, batch_size=32, accumulate=1, shares=4
  )
  assert found == estimate.Batch(largest=0, accumulate=None)
