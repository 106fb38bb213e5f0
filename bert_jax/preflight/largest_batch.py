"""Estimates which batches fit into the memory of a device."""

from bert_jax.trainer import task


def estimate(
  needed: float,
  fixed: float,
  limit: float,
  *,
  sums: float,
  phase: task.Phase,
  shares: int,
) -> dict:
  """Estimates for JSON which batches fit, from what the batch of a phase needs.

  The model is bytes = fixed + constant x (sequences per micro-batch); several
  micro-batches also need `sums`.

  Args:
    needed: bytes per device with the phase's batch and micro-batches.
    fixed: bytes per device of parameters, optimizer, program and gradients.
    limit: bytes per device that can be used.
    sums: bytes per device in which gradients of micro-batches are added up.
    shares: number of parts that the rows are split into over the devices.

  Returns:
    `largest_batch_estimate`, sequences per update with as many micro-batches,
    None if the batch is too small to extrapolate from; and
    `accumulate_that_fits_estimate`, micro-batches, None if none do.
  """
  batch_size, accumulate = phase.batch_size, phase.accumulate
  rows = batch_size // (shares * accumulate)  # of a device, at once

  def base(parts):
    return fixed + (0 if parts == 1 else sums)

  each = max(needed - base(accumulate), 0) / rows

  def fits(parts):
    return base(parts) + each * batch_size / (shares * parts) <= limit

  largest = None
  if each:
    room = max(limit - base(accumulate), 0)
    largest = int(room / each) * shares * accumulate
  per_device = batch_size // shares
  divisors = [n for n in range(1, per_device + 1) if per_device % n == 0]
  return {
    'largest_batch_estimate': largest,
    'accumulate_that_fits_estimate': next(filter(fits, divisors), None),
  }
