"""Estimates how long a step and a run may take, and what they may cost.

A TPU step takes the compiler's estimated cycles divided by the clock rate, and
for ops without such an estimate: kernels, the larger of their schedule
(`kernel_schedules`) and their bytes / memory bandwidth; random bits, gathers
and scatters, bytes / memory bandwidth; collectives, bytes / bandwidth of the
links that a chip has in this slice. XLA gives no times for GPUs: their step is a
roofline, FLOPs / peak and bytes / bandwidth of the data sheet. All estimates get a
range of error (`RANGES`).
"""

import collections
from collections.abc import Sequence

from bert_jax.hardware import accelerators, chips
from bert_jax.preflight import hlo_cost, kernel_schedules

# No transformer on TPUs is known to have reached more of the peak: MaxText
# publishes 71 % at most (v5p), MLPerf's BERT 59 % (v4).
MOST_OF_PEAK = 0.8

_UNCHECKED = 'no run on this chip was compared'
# {`chips.Chip.name`: (factors of the fast and the slow end, their reason)}.
#
# The range must include what is not modelled: waiting for memory within ops,
# sorts and copies, latency of collectives, gaps between steps. None of these
# are known before a run, so the factors are judged by the two published runs
# that can be compared (`a71d0fb:benchmarks/tpu/published.py`), and are wider
# for chips that no run checks.
RANGES = {
  'v2': (0.8, 2.0, f'{_UNCHECKED}; the run of 2018 is not explained'),
  'v3': (0.8, 1.35, 'one published run, of another program, is inside'),
  'v4': (0.8, 1.35, 'one published run, of another program, is inside'),
  'v5e': (0.8, 1.6, _UNCHECKED),
  'v5p': (0.8, 1.6, f'{_UNCHECKED}; its clock is inferred'),
  # On v2 to v5p it is 88 to 100 %, so the chip may be faster by a third.
  'v6e': (
    *(0.65, 1.7),
    f'{_UNCHECKED}; its clock is inferred, and by it large products are '
    'expected to reach 70 % of the peak only',
  ),
  'tpu7x': (
    *(0.8, 1.7),
    f'{_UNCHECKED}, only published speeds of products; its clock is inferred',
  ),
}


# Shares of a GPU's peak that BERT programs reach, at worst and at best.
_GPU_SHARES = (0.25, 0.65)
_GPU_WHY = '25 to 65 % of the peak'


def _describe_step(seconds, ends, parts, why, flops, peak) -> dict:
  """Returns a step for JSON.

  Args:
    seconds: the estimate; for a GPU, at the middle of `_GPU_SHARES`.
    ends: [lowest, highest] seconds of the range of error.
    parts: {name: seconds}, whose sum is `seconds`; for a GPU, at its peak.
    why: the reason for the range, a line to print.
    peak: FLOP/s of all chips.
  """
  low, high = ends
  return {
    'step_seconds_estimate': [low, high],
    'step_seconds_model': seconds,
    'step_seconds_parts': parts,
    'step_seconds_range': why,
    'utilisation_estimate': [flops / high / peak, flops / low / peak],
  }


def estimate_tpu_step(
  cost: hlo_cost.Cost,
  schedule: Sequence[hlo_cost.Piece],
  topology: accelerators.Topology,
  attention: tuple[str, int],
  flops: float,
) -> dict:
  """Estimates a compiled step for JSON.

  Args:
    cost: of one device; the devices of a chip share memory and links evenly.
    schedule: its pieces, from `hlo_cost.list_schedule`.
    attention: from `kernel_schedules.describe_attention`.
    flops: model FLOPs of all devices; bounds the speed of the step by
      `MOST_OF_PEAK`.
  """
  chip = topology.chip
  parts = _time_parts(cost, topology, attention)
  covered = _find_covered_share(schedule, topology, attention)
  parts['collectives'] *= 1 - covered
  seconds = sum(parts.values())
  fast, slow, reason = RANGES[chip.name]
  why = f"{fast:g} to {slow:g} x the model's time: {reason}"
  peak = chip.flops * topology.chips
  least = flops / (MOST_OF_PEAK * peak)
  ends = max(seconds * fast, least), max(seconds * slow, least)
  step = _describe_step(seconds, ends, parts, why, flops, peak)
  return step | {'collectives_covered_share': covered}


def _find_covered_share(schedule, topology, attention) -> float:
  """Returns the share of the collectives' seconds that no device waits for.

  An asynchronous collective runs from its start, in parallel with ops until its
  result is awaited. Permutations of the same pairs wait for each other;
  permutations of different pairs use different links, other collectives all.
  """
  now = total = waited = 0.0
  free: dict[str, float] = {}  # when links are free, by pairs
  ends = {}
  for piece in schedule:
    parts = _time_parts(piece.cost, topology, attention)
    took, began = parts.pop('collectives'), now
    now += sum(parts.values())
    if took:
      (links, *more) = piece.cost.group_bytes
      links = links if '>' in links and not more else ''
      busy = [
        t for pairs, t in free.items() if pairs in ('', links) or not links
      ]
      end = max(began if piece.starts else now, *busy, 0) + took
      free[links], total = end, total + took
      if piece.starts:
        ends[piece.starts] = end
      else:
        waited, now = waited + end - now, end
    end = max(ends.pop(piece.awaits, now), now)
    waited, now = waited + end - now, end
  return max(1 - waited / total, 0.0) if total else 0.0


def _time_parts(cost, topology, attention) -> dict[str, float]:
  """Returns {part: seconds} of a device, one after the other."""
  chip = topology.chip
  memory = chip.hbm_bandwidth / chip.devices
  return {
    'computation': cost.cycles / chip.cycles_per_second,
    'random bits': cost.rng_bytes / memory,
    'kernels': _kernels(cost, chip, memory, *attention),
    'gathers and scatters': cost.moved_bytes / memory,
    'collectives': sum(
      _collective(group, sent, topology)
      for group, sent in cost.group_bytes.items()
    ),
  }


def _kernels(cost, chip, memory, generator, head_size) -> float:
  """Returns the seconds of all kernels, each bound by schedule or memory."""
  speed = chip.product_flops * chip.cycles_per_second * kernel_schedules.SHARE
  seconds = 0.0
  for name, moved in cost.kernel_bytes.items():
    products = cost.kernel_flops.get(name, 0) / speed
    times = kernel_schedules.look_up(chip.name, generator, name, head_size)
    seconds += max(products * times, moved / memory)
  return seconds


def _collective(group: str, sent: float, topology) -> float:
  """Returns the seconds of a device's collectives over one kind of group.

  Collectives over all chips of a slice use all axes at once. Those over some of
  the chips are assumed to use the links of one axis, which has the fewest. In a
  permutation, each pair of chips has a link of its own.

  Args:
    group: devices of a group, a key of `hlo_cost.Cost.group_bytes`.
    sent: bytes that the device sends.
  """
  chip = topology.chip
  each = topology.chips // topology.slices
  if '>' in group:
    pairs = [pair.split('>') for pair in group.split(',')]
    ways = [[int(d) // chip.devices for d in pair] for pair in pairs]
    if any(a // each != b // each for a, b in ways):
      return sent / chip.network_bandwidth
    leaving = collections.Counter(a for a, b in ways if a != b)
    if leaving:
      return sent * max(leaving.values()) / chip.link_speed
    return sent / (chip.hbm_bandwidth / chip.devices)
  devices = [int(d) for d in group.split(',')]
  places = {d // chip.devices for d in devices}  # chips
  if len(places) == 1:  # between the devices of a chip, through its memory
    return sent / (chip.hbm_bandwidth / chip.devices)
  # Bytes that cross the links, without those between devices of a chip.
  n, g = len(devices), len(places)
  sent *= (1 - 1 / g) / (1 - 1 / n)
  # If a group has one device per chip, the other devices' groups send as well.
  sent *= chip.devices * g / n
  if len({place // each for place in places}) > 1:
    return sent / chip.network_bandwidth
  links = topology.axis_links
  if g < each:
    links = [min(n for n in links if n)]
  return sent / (sum(links) * chip.link_speed)


def estimate_gpu_step(
  flops: float,
  chip: chips.Chip,
  count: int,
  others: dict[str, float],
) -> dict:
  """Estimates a step for JSON from the peak of the chips alone.

  Args:
    flops: of the global batch.
    chip: a GPU, from `chips.Chip.for_products`.
    others: {name: seconds} of other work than products, see `time_update`.
  """
  worst, best = _GPU_SHARES
  peak = chip.flops * count
  least = flops / peak
  parts = {'computation at peak': least, **others}
  rest = sum(parts.values()) - least
  middle = least / ((worst + best) / 2) + rest
  ends = least / best + rest, least / worst + rest
  return _describe_step(middle, ends, parts, _GPU_WHY, flops, peak)


def time_update(
  parameters: float, state: float, weights: float, chip: chips.Chip, count: int
) -> dict[str, float]:
  """Returns seconds that GPUs need at least to update the parameters.

  Args:
    parameters: bytes of a device's parameters.
    state: bytes of them and of the optimizer's state.
    weights: bytes of all parameters in the activations' type.
    count: GPUs of a host, which share gradients and weights.
  """
  # The state is read and written, the gradient read.
  moved = 2 * state + parameters
  sent = 2 * weights * (count - 1) / count
  return {
    'optimizer': moved / chip.hbm_bandwidth,
    'collectives': sent / (chip.link_bandwidth / 2),
  }


def estimate_run(
  steps: Sequence[tuple[int, tuple[float, float]]],
  count: int,
  price: float | None,
) -> dict:
  """Estimates a run for JSON, without evaluation, saving and compiling.

  Args:
    steps: for each phase (number of steps, (lowest, highest) seconds of one).

  Returns:
    `hours`, `chip_hours` and `dollars` (None without a price), each (lowest,
    highest).
  """
  hours = tuple(
    sum(n * seconds[end] for n, seconds in steps) / 3600 for end in (0, 1)
  )
  chip_hours = tuple(h * count for h in hours)
  dollars = None if price is None else tuple(h * price for h in chip_hours)
  return {'hours': hours, 'chip_hours': chip_hours, 'dollars': dollars}
