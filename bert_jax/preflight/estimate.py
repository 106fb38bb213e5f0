"""Estimates how long a step and a run may take, and what they may cost.

A roofline, from the figures of `chips`: model FLOPs at a share of the peak, the
update of the parameters at the bandwidth of the memory, and the collectives at
that of the links, beside the computation at best and after it at worst.
"""

from collections.abc import Sequence

from bert_jax.hardware import accelerators, chips
from bert_jax.trainer import task


def list_shares(
  chip: chips.Chip, tokens: float, hidden: int, mlp: float
) -> tuple[tuple[float, float], str]:
  """Returns which shares of its peak a chip may reach, and why, as a line.

  Args:
    tokens: that a device computes at a time.
    mlp: model.mlp_size, or the device's part of it.
  """
  worst, best = chip.reached
  if chip.memory is not None:  # a GPU
    return chip.reached, f'{worst:.0%} to {best:.0%} of the peak'
  alone = chip.find_product_share((tokens * hidden * mlp) ** (1 / 3))
  source = 'TPU7x' if chip.product is None else 'this chip'
  why = (
    f'{alone * worst:.0%} to {alone * best:.0%} of the peak, {worst:g} to '
    f'{best:g} x the {alone:.0%} that products of this size reach by '
    f'measurements on {source}'
  )
  return (alone * worst, alone * best), why


def estimate_step(
  flops: float,
  peak: float,
  shares: tuple[float, float],
  why: str,
  others: dict[str, float],
) -> dict:
  """Estimates a step for JSON.

  Args:
    flops: of the global batch; `peak`, FLOP/s of all chips.
    shares: of the peak, at worst and at best, and `why`, from `list_shares`.
    others: seconds of `optimizer` and `collectives`.
  """
  least, (worst, best) = flops / peak, shares
  low = max(least / best, others['collectives']) + others['optimizer']
  high = least / worst + sum(others.values())
  return {
    'step_seconds_estimate': [low, high],
    'step_seconds_parts': {'computation at peak': least, **others},
    'step_seconds_range': why,
    'utilisation_estimate': [least / high, least / low],
  }


def time_update(parameters: float, state: float, chip: chips.Chip) -> float:
  """Returns seconds of an update, of a device's bytes of parameters and state.

  The state, which includes them, is read and written, the gradient read.
  """
  return (2 * state + parameters) / (chip.hbm_bandwidth / chip.devices)


def time_collectives(sent: float, topology: accelerators.Topology) -> float:
  """Returns seconds to add up gradients and gather weights, bytes of a device."""
  chip, slices = topology.chip, topology.slices
  if not topology.is_tpu:  # hosts are taken to be linked as GPUs are
    n = topology.chips
    return sent * (1 - 1 / n) / (chip.link_bandwidth / 2)
  each = topology.chips // slices
  links = sum(topology.axis_links) * chip.link_speed
  seconds = sent * (1 - 1 / each) / links if each > 1 else 0.0
  if slices > 1:  # each chip exchanges its part with those of other slices
    seconds += sent / each * (1 - 1 / slices) / chip.network_bandwidth
  return seconds


def estimate_run(
  steps: Sequence[tuple[int, tuple[float, float]]],
  count: int,
  price: float | None,
) -> dict:
  """Estimates a run for JSON, without evaluation, saving and compiling.

  Args:
    steps: for each phase (number of steps, (lowest, highest) seconds of one).

  Returns:
    {what: (lowest, highest)}; `dollars` are None without a price.
  """
  hours = tuple(
    sum(n * seconds[end] for n, seconds in steps) / 3600 for end in (0, 1)
  )
  chip_hours = tuple(h * count for h in hours)
  dollars = None if price is None else tuple(h * price for h in chip_hours)
  return {'hours': hours, 'chip_hours': chip_hours, 'dollars': dollars}


def estimate_batch(
  needed: float,
  fixed: float,
  limit: float,
  sums: float,
  phase: task.Phase,
  shares: int,
) -> dict:
  """Estimates for JSON which batches fit, by what that of a phase needs.

  The model is bytes = fixed + constant x (sequences per micro-batch), and `sums`
  more with several micro-batches; all are of a device.

  Args:
    shares: parts that the rows are split into over the devices.

  Returns:
    `largest_batch_estimate`, sequences per update with as many micro-batches,
    None if the batch is too small to extrapolate from; and
    `accumulate_that_fits_estimate`, micro-batches, None if none do.
  """
  rows, parts = phase.batch_size // shares, phase.accumulate

  def leave(parts):
    return limit - fixed - (sums if parts > 1 else 0)

  each, largest = max(needed - limit + leave(parts), 0) / (rows // parts), None
  if each:
    largest = int(max(leave(parts), 0) / each) * shares * parts
  fitting = (
    n
    for n in range(1, rows + 1)
    if rows % n == 0 and each * rows / n <= leave(n)
  )
  return {
    'largest_batch_estimate': largest,
    'accumulate_that_fits_estimate': next(fitting, None),
  }
