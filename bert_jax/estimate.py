"""How long a step and a run may take, and what they may cost. No measurement.

A TPU's step: what the compiler estimates in cycles, by the clock. What it does
not cost: a kernel as the larger of its FLOPs at half the speed of a large
product and its bytes by the memory's bandwidth; random bits, gathers and
scatters as bytes by that bandwidth; and collectives as bytes by that of the
links. A GPU's step, for which nothing was compiled: FLOPs by the peak.
"""

import dataclasses

from bert_jax import chips, hlo

# Of a large product's speed, what a kernel is taken to reach.
_KERNEL_SHARE = 0.5
# What BERT programs reach of a GPU's peak, at worst and at best.
_GPU_SHARES = (0.25, 0.65)


@dataclasses.dataclass(frozen=True)
class Step:
  """Seconds of a step, estimated.

  Attributes:
    low: collectives wholly behind the computation, or a GPU at its best.
    high: one after the other, or a GPU at its worst.
    parts: {what: seconds}, of which they are made.
  """

  low: float
  high: float
  parts: dict[str, float]


def tpu_step(cost: hlo.Cost, chip: chips.Chip) -> Step:
  """Estimates a compiled step.

  Args:
    cost: of one device.
    chip: what it is part of; its devices share memory and links evenly.
  """
  memory = chip.hbm_bandwidth / chip.devices
  parts = {
    'computation': cost.cycles / chip.cycles_per_second,
    'random bits': cost.rng_bytes / memory,
    'kernels': _kernels(cost, chip, memory),
    'gathers and scatters': cost.moved_bytes / memory,
  }
  low = high = sum(parts.values())
  if chip.link_bandwidth is not None:
    # What is sent uses one direction of the links.
    sending = chip.link_bandwidth / chip.devices / 2
    parts['collectives'] = cost.sent_bytes / sending
    low, high = max(low, parts['collectives']), high + parts['collectives']
  return Step(low, high, parts)


def _kernels(cost, chip, memory) -> float:
  """Returns the seconds of all kernels, each bound by FLOPs or by memory."""
  speed = _KERNEL_SHARE * chip.product_flops * chip.cycles_per_second
  return sum(
    max(cost.kernel_flops.get(name, 0) / speed, moved / memory)
    for name, moved in cost.kernel_bytes.items()
  )


def cycle_utilisation(flops: float, seconds: float, chip: chips.Chip) -> float:
  """Returns the FLOPs per estimated cycle, relative to a large product's.

  Args:
    flops: model FLOPs of a device.
    seconds: some of `Step.parts`, added.
    chip: what the device is part of.
  """
  return flops / (seconds * chip.cycles_per_second) / chip.product_flops


def gpu_step(flops: float, chip: chips.Chip, count: int) -> Step:
  """Estimates a step by the peak of the chips alone.

  Args:
    flops: of the global batch.
    chip: a GPU.
    count: how many.
  """
  least = flops / (chip.flops * count)
  worst, best = _GPU_SHARES
  return Step(least / best, least / worst, {'computation at peak': least})


def utilisation(flops: float, step: Step, chip: chips.Chip, count: int):
  """Returns (lowest, highest) share of the chips' peak that a step reaches."""
  peak = chip.flops * count
  return flops / step.high / peak, flops / step.low / peak


@dataclasses.dataclass(frozen=True)
class Run:
  """A run or a phase of it, without evaluation, saving and compiling.

  Attributes:
    hours: (lowest, highest).
    chip_hours: the same of all chips.
    dollars: the same; None without a price.
  """

  hours: tuple[float, float]
  chip_hours: tuple[float, float]
  dollars: tuple[float, float] | None


def run(steps, count: int, price: float | None) -> Run:
  """Estimates a run.

  Args:
    steps: of each phase (how many, (lowest, highest) seconds of one).
    count: chips.
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
  """What would fit.

  Attributes:
    largest: sequences per update, with the micro-batches as they are; None
      where the batch is too small to tell.
    accumulate: the least number of micro-batches with which the batch fits;
      None if no number does.
  """

  largest: int | None
  accumulate: int | None


def batch(
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
  """Estimates which batches fit, from the memory that one needs.

  Bytes are taken to be fixed + gradients + a constant x (sequences of a
  micro-batch); micro-batches also need what they are added up in.

  Args:
    needed: bytes of a device with `batch_size` and `accumulate`.
    fixed: bytes that no batch changes: parameters, optimizer, program.
    gradients: bytes of a device's share of them.
    limit: bytes of a device that can be used.
    sums: bytes of a device in which micro-batches are added up.
    batch_size: sequences per update.
    accumulate: micro-batches of an update.
    shares: parts that the rows are split into over the devices.
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
