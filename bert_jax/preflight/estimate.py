"""Estimates how long a step and a run may take, and what they may cost.

A TPU step takes the compiler's estimated cycles divided by the clock rate, and
for what has no such estimate: kernels, the larger of their schedule
(`kernel_schedules`) and their bytes / memory bandwidth; random bits, gathers
and scatters, bytes / memory bandwidth; collectives, bytes / bandwidth of the
links that a chip has in this slice. For a GPU step nothing is compiled: it is
a roofline, FLOPs / peak and bytes / bandwidth of the data sheet. All estimates
get a range of error (`error_range`).
"""

import dataclasses
from collections.abc import Sequence

from bert_jax.hardware import chips
from bert_jax.hardware import topology as topology_lib
from bert_jax.preflight import error_range, hlo_cost, kernel_schedules

# Shares of a GPU's peak that BERT programs reach, at worst and at best.
_GPU_SHARES = (0.25, 0.65)
_GPU_WHY = '25 to 65 % of the peak; nothing was compiled'


@dataclasses.dataclass(frozen=True)
class Step:
  """The estimated time of a step.

  Attributes:
    seconds: the estimate with no parts overlapped; for a GPU, at the middle of
      `_GPU_SHARES`.
    low: seconds at the fast end of the range of error.
    high: seconds at the slow end.
    parts: {name: seconds}, whose sum is `seconds`; for a GPU, at its peak.
    why: the reason for the range, a line to print.
  """

  seconds: float
  low: float
  high: float
  parts: dict[str, float]
  why: str = ''

  @property
  def hidden(self) -> float:
    """Seconds with all collectives overlapped with computation."""
    sent = self.parts.get('collectives', 0.0)
    return max(self.seconds - sent, sent)


def estimate_tpu_step(
  cost: hlo_cost.Cost,
  topology: topology_lib.Topology,
  *,
  generator: str = 'rbg',
  head_size: int = 64,
  flops: float = 0.0,
  calibration: dict | None = None,
) -> Step:
  """Estimates a compiled step.

  Args:
    cost: cost of the step on one device.
    topology: that it was compiled for; the devices of a chip share its memory
      and links evenly.
    generator: generator of attention dropout's bits, see
      `kernel_schedules.get_generator`.
    head_size: K, of attention.
    flops: model FLOPs of all devices; bounds the speed of the step by
      `error_range.MOST_OF_PEAK`.
    calibration: the chip's calibration, from `calibration.read`, or None.
  """
  chip = topology.chip
  memory = chip.hbm_bandwidth / chip.devices
  parts = {
    'computation': cost.cycles / chip.cycles_per_second,
    'random bits': cost.rng_bytes / memory,
    'kernels': _kernels(cost, chip, memory, generator, head_size),
    'gathers and scatters': cost.moved_bytes / memory,
    'collectives': sum(
      _collective(group, sent, topology)
      for group, sent in cost.group_bytes.items()
    ),
  }
  step = Step(sum(parts.values()), 0, 0, parts)
  if calibration:
    found = error_range.get_calibrated(calibration)
    low, why = step.seconds * found.fast, found.why
  else:
    found = error_range.get_range(chip.name)
    low, why = step.hidden * found.fast, found.text
  least = flops / (error_range.MOST_OF_PEAK * chip.flops * topology.chips)
  high = step.seconds * found.slow
  return dataclasses.replace(
    step, low=max(low, least), high=max(high, least), why=why
  )


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
  the chips are assumed to use the links of one axis, the one with the fewest.

  Args:
    group: devices of a group, a key of `hlo_cost.Cost.group_bytes`.
    sent: bytes that the device sends.
    topology: the accelerators, from `topology.parse`.
  """
  chip = topology.chip
  devices = [int(d) for d in group.split(',')]
  places = {d // chip.devices for d in devices}  # chips
  if len(places) == 1:  # between the devices of a chip, through its memory
    return sent / (chip.hbm_bandwidth / chip.devices)
  # Bytes that cross the links, without those between devices of a chip.
  n, g = len(devices), len(places)
  sent *= (1 - 1 / g) / (1 - 1 / n)
  # If a group has one device per chip, the other devices' groups send as well.
  sent *= chip.devices * g / n
  each = topology.chips // topology.slices
  if len({place // each for place in places}) > 1:
    return sent / chip.network_bandwidth
  links = topology.axis_links
  if g < each:
    links = [min(n for n in links if n)]
  return sent / (sum(links) * chip.link_speed)


def compute_cycle_utilisation(
  flops: float, seconds: float, chip: chips.Chip
) -> float:
  """Returns the FLOPs per estimated cycle, relative to a large product's.

  Args:
    flops: model FLOPs per device.
    seconds: sum of some of `Step.parts`.
    chip: the device's chip.
  """
  return flops / (seconds * chip.cycles_per_second) / chip.product_flops


def estimate_gpu_step(
  flops: float,
  chip: chips.Chip,
  count: int,
  calibration: dict | None = None,
  others: dict[str, float] | None = None,
) -> Step:
  """Estimates a step from the peak of the chips alone.

  Args:
    flops: FLOPs of the global batch.
    chip: a GPU, from `chips.Chip.for_products`.
    count: number of GPUs.
    calibration: the chip's calibration, from `calibration.read`, or None.
    others: {name: seconds} of what is not products, see `time_update`.
  """
  worst, best = _GPU_SHARES
  least = flops / (chip.flops * count)
  parts = {'computation at peak': least, **(others or {})}
  rest = sum(parts.values()) - least
  middle = least / ((worst + best) / 2) + rest
  if calibration is None:
    low, high = least / best + rest, least / worst + rest
    return Step(middle, low, high, parts, _GPU_WHY)
  found = error_range.get_calibrated(calibration)
  low = max(middle * found.fast, least)
  return Step(middle, low, middle * found.slow, parts, found.why)


def time_update(
  parameters: float, state: float, weights: float, chip: chips.Chip, count: int
) -> dict[str, float]:
  """Returns seconds that GPUs need at least to update the parameters.

  Args:
    parameters: bytes of a device's parameters.
    state: bytes of them and of the optimizer's state.
    weights: bytes of all parameters in the activations' type.
    chip: a GPU.
    count: GPUs of a host, which share gradients and weights.
  """
  # The state is read and written, the gradient read.
  moved = 2 * state + parameters
  sent = 2 * weights * (count - 1) / count
  return {
    'optimizer': moved / chip.hbm_bandwidth,
    'collectives': sent / (chip.link_bandwidth / 2),
  }


def compute_utilisation(flops: float, step: Step, chip: chips.Chip, count: int):
  """Returns (lowest, highest) share of the chips' peak that a step reaches."""
  peak = chip.flops * count
  return flops / step.high / peak, flops / step.low / peak


def describe_step(
  step: Step, flops: float, chip: chips.Chip, count: int
) -> dict:
  """Returns a step for JSON, as `preflight` writes it."""
  return {
    'step_seconds_estimate': [step.low, step.high],
    'step_seconds_model': step.seconds,
    'step_seconds_parts': step.parts,
    'step_seconds_range': step.why,
    'utilisation_estimate': list(compute_utilisation(flops, step, chip, count)),
  }


@dataclasses.dataclass(frozen=True)
class Run:
  """Estimates of a run or a phase, without evaluation, saving and compiling.

  Attributes:
    hours: (lowest, highest).
    chip_hours: (lowest, highest) hours times chips.
    dollars: (lowest, highest) cost in US dollars; None without a price.
  """

  hours: tuple[float, float]
  chip_hours: tuple[float, float]
  dollars: tuple[float, float] | None


def estimate_run(
  steps: Sequence[tuple[int, tuple[float, float]]],
  count: int,
  price: float | None,
) -> Run:
  """Estimates a run.

  Args:
    steps: for each phase (number of steps, (lowest, highest) seconds of one).
    count: number of chips.
    price: US dollars per chip and hour.
  """
  hours = tuple(
    sum(n * seconds[end] for n, seconds in steps) / 3600 for end in (0, 1)
  )
  chip_hours = tuple(h * count for h in hours)
  dollars = None if price is None else tuple(h * price for h in chip_hours)
  return Run(hours, chip_hours, dollars)


@dataclasses.dataclass(frozen=True)
class Batch:
  """Batches that would fit.

  Attributes:
    largest: sequences per update with the same number of micro-batches; None
      if the batch is too small to extrapolate from.
    accumulate: the least number of micro-batches with which the batch fits;
      None if there is none.
  """

  largest: int | None
  accumulate: int | None


def estimate_batch(
  needed: float,
  fixed: float,
  gradients: float,
  limit: float,
  *,
  sums: float,
  batch_size: int,
  accumulate: int,
  shares: int,
) -> Batch:
  """Estimates which batches fit, from the memory that one batch needs.

  The model is bytes = fixed + gradients + constant x (sequences per
  micro-batch); several micro-batches also need `sums`.

  Args:
    needed: bytes per device with `batch_size` and `accumulate`.
    fixed: bytes per device of parameters, optimizer and program.
    gradients: bytes of a device's shard of the gradients.
    limit: bytes per device that can be used.
    sums: bytes per device in which gradients of micro-batches are added up.
    batch_size: sequences per update.
    accumulate: micro-batches per update.
    shares: number of parts that the rows are split into over the devices.
  """
  rows = batch_size // (shares * accumulate)  # of a device, at once

  def base(parts):
    return fixed + gradients + (0 if parts == 1 else sums)

  each = max(needed - base(accumulate), 0) / rows

  def fits(parts):
    return base(parts) + each * batch_size / (shares * parts) <= limit

  largest = None
  if each:
    room = max(limit - base(accumulate), 0)
    largest = int(room / each) * shares * accumulate
  per_device = batch_size // shares
  divisors = [n for n in range(1, per_device + 1) if per_device % n == 0]
  return Batch(
    largest=largest,
    accumulate=next((n for n in divisors if fits(n)), None),
  )
