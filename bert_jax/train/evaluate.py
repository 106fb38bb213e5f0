"""Held-out evaluation: sums over all batches, divided once."""

import math
from collections.abc import Callable, Iterable

import jax


def evaluate(step: Callable, params, batches: Iterable) -> dict | None:
  """Averages the sums of an evaluation step over batches.

  Args:
    step: (params, batch) -> {name: (sum, count)} on the device.
    params: of the model.
    batches: on the device; None among them means that evaluation is to stop.

  Returns:
    {name: mean}, with `mlm_perplexity`; None if it was stopped.
  """
  totals: dict[str, list[float]] = {}
  for batch in batches:
    if batch is None:
      return None
    add(totals, jax.device_get(step(params, batch)))
  return compute_means(totals)


def add(totals: dict[str, list[float]], sums: dict):
  """Adds {name: (sum, count)} to running totals."""
  for name, (total, count) in sums.items():
    entry = totals.setdefault(name, [0.0, 0.0])
    entry[0] += float(total)
    entry[1] += float(count)


def compute_means(totals: dict[str, list[float]]) -> dict[str, float]:
  """Divides totals by their counts, adds perplexity and the summed loss."""
  found = {name: total / max(n, 1) for name, (total, n) in totals.items()}
  found['loss'] = sum(v for k, v in found.items() if k.endswith('_loss'))
  if 'mlm_loss' in found:
    found['mlm_perplexity'] = math.exp(min(found['mlm_loss'], 700))
  return found
