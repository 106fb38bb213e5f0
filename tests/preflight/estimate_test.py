"""The arithmetic of estimates, with numbers to check by hand."""

import dataclasses

import pytest

from bert_jax.hardware import accelerators, chips
from bert_jax.preflight import estimate, hlo_cost

# 1 GHz, 100 bytes/s of memory, 4 links of 5 bytes/s each way, 2 bytes/s between
# slices, 80 FLOPs/s of a large product.
CHIP = chips.Chip(
  *('v5e', ('X',), 1000.0, 100.0, 40.0),
  links=4,
  network_bandwidth=2.0,
  product_cycles=2 * 8192**3 * 1e9 / 80,
  cycles_per_second=1e9,
)
PAIR = dataclasses.replace(CHIP, name='v3', devices=2)


def slices_of(chip, *bounds, slices=1):
  return accelerators.Topology('x', chip, bounds, slices, 1, {})


FOUR = slices_of(CHIP, 2, 2)


def estimate_step(
  cost,
  where=FOUR,
  schedule=(),
  attention=('rbg', 64),
  flops=0.0,
):
  return estimate.estimate_tpu_step(cost, schedule, where, attention, flops)


def test_step_is_its_parts_one_after_the_other():
  cost = hlo_cost.Cost(
    cycles=2e9,
    rng_bytes=100,
    kernel_bytes={'k': 200},
    moved_bytes=300,
    group_bytes={'0,1,2,3': 40},
  )
  found = estimate_step(cost)
  assert found['step_seconds_parts'] == {
    'computation': 2.0,
    'random bits': 1.0,
    'kernels': 2.0,
    'gathers and scatters': 3.0,
    'collectives': 4.0,  # two links
  }
  assert found['step_seconds_model'] == 12.0
  # The devices of a chip share its memory.
  pair = estimate_step(hlo_cost.Cost(rng_bytes=100), slices_of(PAIR, 2, 2))
  assert pair['step_seconds_parts']['random bits'] == 2.0


# 8 s, and 2 s of collectives.
TEN = hlo_cost.Cost(cycles=8e9, group_bytes={'0,1,2,3': 20})


def test_range_is_that_of_the_chip_around_the_model():
  found = estimate_step(TEN)
  # v5e: 0.8 to 1.6 x 10 s.
  assert found['step_seconds_estimate'] == pytest.approx([8.0, 16.0])
  assert found['step_seconds_range'] == (
    "0.8 to 1.6 x the model's time: no run on this chip was compared"
  )


def test_every_tpu_has_a_range_with_a_reason():
  for chip in chips.CHIPS:
    if chip.memory is None:
      fast, slow, reason = estimate.RANGES[chip.name]
      assert 0 < fast < 1 < slow and reason


def test_no_step_is_faster_than_most_of_the_peak():
  # 4 chips of 1000 FLOP/s: 32,000 FLOPs take 8 s at the peak, 10 at 80 %.
  found = estimate_step(hlo_cost.Cost(cycles=8e9), flops=32e3)
  assert found['step_seconds_estimate'] == pytest.approx([10.0, 12.8])


def test_each_kernel_is_bound_by_its_schedule_or_its_bytes(monkeypatch):
  known = {('v5e', 'rbg', 'wide', 32): 2.0, ('v5e', 'rbg', 'long', 32): 2.0}
  monkeypatch.setattr(
    estimate.kernel_schedules, 'look_up', lambda *case: known[case]
  )
  cost = hlo_cost.Cost(
    kernel_flops={'wide': 400, 'long': 40},
    kernel_bytes={'wide': 100, 'long': 300},
  )
  # 2 x 400 FLOPs at 40/s against 100 bytes at 100/s; 2 x 40 against 300.
  found = estimate_step(cost, attention=('rbg', 32))
  assert found['step_seconds_parts']['kernels'] == pytest.approx(20.0 + 3.0)


def numbers(count):
  return ','.join(map(str, range(count)))


@pytest.mark.parametrize(
  'where, group, sent, seconds',
  [
    # Two neighbours in a 2x2, no ring: 2 x 5 bytes/s. One in a row of two.
    (FOUR, '0,1,2,3', 60, 6.0),
    (slices_of(CHIP, 1, 2), '0,1', 60, 12.0),
    # A ring of 16 has both links of its axis; a part of the chips has one axis.
    (slices_of(CHIP, 16, 16), numbers(256), 60, 3.0),
    (slices_of(CHIP, 16, 16), numbers(16), 60, 6.0),
    (slices_of(CHIP, 4, 4), '0,1,2,3', 60, 12.0),
    # 8 devices on 4 chips: 7/8 of 80 bytes is sent, 3/4 crosses the links.
    (slices_of(PAIR, 2, 2), numbers(8), 70, 6.0),
    # Groups of one device of each chip: two of them at once, 60 bytes each.
    (slices_of(PAIR, 2, 2), '0,2,4,6', 60, 12.0),
    # Within a chip through the memory, 50 bytes/s of a device.
    (slices_of(PAIR, 2, 2), '0,1', 100, 2.0),
    # In a permutation, each pair of chips has a link of its own.
    (slices_of(CHIP, 4, 4), '0>1,1>2,2>3,3>0', 10, 2.0),
    # One device of each chip sends to another chip, then both do, then none.
    (slices_of(PAIR, 2, 2), '0>1,1>2,2>3,3>0', 10, 2.0),
    (slices_of(PAIR, 2, 2), '0>2,1>3,2>0,3>1', 10, 4.0),
    (slices_of(PAIR, 2, 2), '0>1,1>0', 10, 0.2),
    # What goes to another slice takes the network.
    (slices_of(CHIP, 2, 2, slices=2), '0,4', 6, 3.0),
    (slices_of(CHIP, 2, 2, slices=2), '0>4,4>0', 6, 3.0),
    (slices_of(CHIP, 2, 2, slices=2), '0,1,2,3', 60, 6.0),
  ],
)
def test_collectives_have_the_links_that_their_chips_share(
  where, group, sent, seconds
):
  found = estimate_step(hlo_cost.Cost(group_bytes={group: sent}), where)
  assert found['step_seconds_parts']['collectives'] == pytest.approx(seconds)


@pytest.mark.parametrize(
  'pieces, covered',
  [
    # Bytes take a fifth of a second on a link, 20 bytes over all chips 1 s.
    ([('x', 10, 0, 'a', ''), ('', 0, 3e9, '', 'a')], 1.0),
    ([('x', 10, 0, 'a', ''), ('', 0, 1e9, '', 'a')], 0.5),
    ([('x', 10, 0, '', ''), ('', 0, 3e9, '', '')], 0.0),
    # The same links one after the other, others at the same time.
    (
      [('x', 10, 0, 'a', ''), ('x', 10, 0, 'b', ''), ('', 0, 2e9, '', 'b')],
      0.5,
    ),
    (
      [('x', 10, 0, 'a', ''), ('y', 10, 0, 'b', ''), ('', 0, 2e9, '', 'b')],
      1.0,
    ),
    (
      [('x', 10, 0, 'a', ''), ('all', 40, 0, '', ''), ('', 0, 0, '', 'a')],
      0.0,
    ),
  ],
)
def test_what_is_covered_is_what_the_device_does_not_wait_for(pieces, covered):
  groups = {'x': '0>1,1>0', 'y': '0>2,2>0', 'all': '0,1,2,3'}
  schedule = [
    hlo_cost.Piece(
      hlo_cost.Cost(
        cycles=cycles, group_bytes={groups[name]: sent} if name else {}
      ),
      starts,
      awaits,
    )
    for name, sent, cycles, starts, awaits in pieces
  ]
  found = estimate_step(TEN, schedule=schedule)
  assert found['collectives_covered_share'] == pytest.approx(covered)
  waited = 2 * (1 - covered)
  assert found['step_seconds_parts']['collectives'] == pytest.approx(waited)
  assert found['step_seconds_model'] == pytest.approx(8 + waited)


def test_gpu_step_is_a_share_of_the_peak():
  found = estimate.estimate_gpu_step(8000.0, CHIP, 8, {})
  assert found['step_seconds_parts'] == {'computation at peak': 1.0}
  assert found['step_seconds_estimate'] == pytest.approx([1 / 0.65, 4])
  assert found['step_seconds_model'] == pytest.approx(1 / 0.45)
  assert found['step_seconds_range'] == '25 to 65 % of the peak'
  assert found['utilisation_estimate'] == pytest.approx([0.25, 0.65])


def test_what_is_no_product_of_a_gpu_takes_its_bytes():
  chip = chips.Chip('gpu', (), 1000.0, hbm_bandwidth=100, link_bandwidth=20)
  found = estimate.time_update(10, 30, 5, chip, 1)
  assert found == {'optimizer': pytest.approx(0.7), 'collectives': 0}
  found = estimate.time_update(10, 30, 5, chip, 2)
  assert found['collectives'] == pytest.approx(0.5)
  others = {'optimizer': 0.5}
  step = estimate.estimate_gpu_step(450.0, chip, 1, others)
  assert step['step_seconds_model'] == pytest.approx(1.5)
  assert step['step_seconds_estimate'] == pytest.approx(
    [0.45 / 0.65 + 0.5, 2.3]
  )


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
