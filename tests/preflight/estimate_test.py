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


def collectives(where, **groups):
  """Returns the seconds of {group: bytes}, such as g01=60 for devices 0, 1."""
  sent = {','.join(name[1:]): n for name, n in groups.items()}
  return estimate.estimate_tpu_step(hlo_cost.Cost(group_bytes=sent), where)[
    'step_seconds_parts'
  ]['collectives']


def test_step_is_its_parts_one_after_the_other():
  cost = hlo_cost.Cost(
    cycles=2e9,
    rng_bytes=100,
    kernel_bytes={'k': 200},
    moved_bytes=300,
    group_bytes={'0,1,2,3': 40},
  )
  found = estimate.estimate_tpu_step(cost, slices_of(CHIP, 2, 2))
  assert found['step_seconds_parts'] == {
    'computation': 2.0,
    'random bits': 1.0,
    'kernels': 2.0,
    'gathers and scatters': 3.0,
    'collectives': 4.0,  # two links
  }
  assert found['step_seconds_model'] == 12.0


def test_range_is_that_of_the_chip_around_the_model():
  cost = hlo_cost.Cost(cycles=8e9, group_bytes={'0,1,2,3': 20})
  found = estimate.estimate_tpu_step(cost, slices_of(CHIP, 2, 2))
  # v5e: 0.8 to 1.6 x 10 s; 9 s if half of the collectives is covered.
  assert found['step_seconds_estimate'] == pytest.approx([8.0, 16.0])
  half = estimate.estimate_tpu_step(cost, slices_of(CHIP, 2, 2), covered=0.5)
  assert half['step_seconds_model'] == pytest.approx(9.0)
  assert half['step_seconds_parts']['collectives'] == pytest.approx(1.0)
  assert found['step_seconds_range'] == (
    "0.8 to 1.6 x the model's time: no run on this chip was compared"
  )


def test_every_tpu_has_a_range_with_a_reason():
  for chip in chips.CHIPS:
    if chip.memory is None:
      found = estimate.RANGES[chip.name]
      assert 0 < found.fast < 1 < found.slow and found.why


def test_range_of_a_measured_chip_is_narrow_and_around_the_measurement():
  entry = {'ratios': [1.5, 1.4], 'date': '2026-11-22', 'topology': 'v5e:2x2'}
  cost = hlo_cost.Cost(cycles=8e9, group_bytes={'0,1,2,3': 20})
  found = estimate.estimate_tpu_step(
    cost, slices_of(CHIP, 2, 2), calibration=entry
  )
  # 0.85 x 1.4 and 1.2 x 1.5 of 10 s.
  assert found['step_seconds_estimate'] == pytest.approx([11.9, 18.0])
  assert 'a run on v5e:2x2 of 2026-11-22' in found['step_seconds_range']
  assert '1.40 to 1.50 times' in found['step_seconds_range']


def test_no_step_is_faster_than_most_of_the_peak():
  # 4 chips of 1000 FLOP/s: 32,000 FLOPs take 8 s at the peak, 10 at 80 %.
  found = estimate.estimate_tpu_step(
    hlo_cost.Cost(cycles=8e9), slices_of(CHIP, 2, 2), flops=32e3
  )
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
  found = estimate.estimate_tpu_step(
    cost, slices_of(CHIP, 2, 2), generator='rbg', head_size=32
  )
  assert found['step_seconds_parts']['kernels'] == pytest.approx(20.0 + 3.0)


def test_collectives_have_the_links_that_the_slice_gives_a_chip():
  # Two neighbours in a 2x2, no ring: 2 x 5 bytes/s. One in a row of two.
  assert collectives(slices_of(CHIP, 2, 2), g0123=60) == pytest.approx(6.0)
  assert collectives(slices_of(CHIP, 1, 2), g01=60) == pytest.approx(12.0)


def test_a_ring_of_16_has_both_links_of_its_axis():
  every = ','.join(map(str, range(256)))
  cost = hlo_cost.Cost(group_bytes={every: 60})
  found = estimate.estimate_tpu_step(cost, slices_of(CHIP, 16, 16))
  assert found['step_seconds_parts']['collectives'] == pytest.approx(3.0)
  # 16 of 256 chips use one axis of the two.
  row = ','.join(map(str, range(16)))
  found = estimate.estimate_tpu_step(
    hlo_cost.Cost(group_bytes={row: 60}), slices_of(CHIP, 16, 16)
  )
  assert found['step_seconds_parts']['collectives'] == pytest.approx(6.0)


def test_a_stage_over_a_part_of_the_slice_has_one_axis():
  assert collectives(slices_of(CHIP, 4, 4), g0123=60) == pytest.approx(12.0)


def test_devices_of_a_chip_share_its_links_and_have_each_others_shares():
  # 8 devices on 4 chips: 7/8 of 80 bytes is sent, 3/4 crosses the links.
  eight = slices_of(PAIR, 2, 2)
  assert collectives(eight, g01234567=70) == pytest.approx(6.0)
  # Groups of one device of each chip: two of them at once, 60 bytes each.
  assert collectives(eight, g0246=60) == pytest.approx(12.0)
  # Within a chip through the memory, 50 bytes/s of a device.
  assert collectives(eight, g01=100) == pytest.approx(2.0)


def test_a_permutation_has_a_link_for_each_pair_of_chips():
  ring = hlo_cost.Cost(group_bytes={'0>1,1>2,2>3,3>0': 10})
  step = estimate.estimate_tpu_step(ring, slices_of(CHIP, 4, 4))
  assert step['step_seconds_parts']['collectives'] == pytest.approx(2.0)
  for pairs, seconds in (
    ('0>1,1>2,2>3,3>0', 2.0),  # one device of each chip sends to another chip
    ('0>2,1>3,2>0,3>1', 4.0),  # both do
    ('0>1,1>0', 0.2),  # through the memory, 50 bytes/s of a device
  ):
    cost = hlo_cost.Cost(group_bytes={pairs: 10})
    step = estimate.estimate_tpu_step(cost, slices_of(PAIR, 2, 2))
    assert step['step_seconds_parts']['collectives'] == pytest.approx(seconds)


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
  found = estimate.find_covered_share(schedule, slices_of(CHIP, 2, 2))
  assert found == pytest.approx(covered)


def test_what_goes_to_another_slice_takes_the_network():
  both = slices_of(CHIP, 2, 2, slices=2)
  assert collectives(both, g04=6) == pytest.approx(3.0)
  assert collectives(both, g0123=60) == pytest.approx(6.0)


def test_devices_of_a_chip_share_its_memory():
  found = estimate.estimate_tpu_step(
    hlo_cost.Cost(rng_bytes=100), slices_of(PAIR, 2, 2)
  )
  assert found['step_seconds_parts']['random bits'] == 2.0


def test_gpu_step_is_a_share_of_the_peak():
  found = estimate.estimate_gpu_step(8000.0, CHIP, 8)
  assert found['step_seconds_parts'] == {'computation at peak': 1.0}
  assert found['step_seconds_estimate'] == pytest.approx([1 / 0.65, 4])
  assert found['step_seconds_model'] == pytest.approx(1 / 0.45)
  assert 'nothing was compiled' in found['step_seconds_range']
  assert found['utilisation_estimate'] == pytest.approx([0.25, 0.65])


def test_what_is_no_product_of_a_gpu_takes_its_bytes():
  chip = chips.Chip('gpu', (), 1000.0, hbm_bandwidth=100, link_bandwidth=20)
  found = estimate.time_update(10, 30, 5, chip, 1)
  assert found == {'optimizer': pytest.approx(0.7), 'collectives': 0}
  found = estimate.time_update(10, 30, 5, chip, 2)
  assert found['collectives'] == pytest.approx(0.5)
  step = estimate.estimate_gpu_step(450.0, chip, 1, others={'optimizer': 0.5})
  assert step['step_seconds_model'] == pytest.approx(1.5)
  assert step['step_seconds_estimate'] == pytest.approx(
    [0.45 / 0.65 + 0.5, 2.3]
  )


def test_gpu_step_is_corrected_by_a_measurement():
  entry = {'ratios': [0.9], 'date': '2026-11-22', 'topology': 'h100:8'}
  found = estimate.estimate_gpu_step(8000.0, CHIP, 8, entry)
  assert found['step_seconds_estimate'] == pytest.approx([1.7, 2.4])
  assert '0.90 times' in found['step_seconds_range']


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
