"""Held-out evaluation: sums over all batches, divided once."""

from collections.abc import Callable, Iterable
from typing import Any

import jax


def evaluate(
  step: Callable,
  params: Any,
  batches: Iterable,
  collect: Callable[[Any, int, Any], Any],
  name_part: Callable[[int], str] = lambda i: '',
) -> tuple[dict, Any] | None:
  """Evaluates a model on batches.

  The device computes a batch while the previous one's results are read.

  Args:
    step: (params, batch) -> (sums, predictions), see `step.eval_step`.
    batches: batches on the devices; a None among them stops the evaluation.
    collect: (kept, i, predictions) -> kept, see `task.Task.collect`.
    name_part: (i) -> name of the part of the data that a batch is of, whose
      metrics are added up alone, too, see `task.Task.name_eval_part`.

  Returns:
    ({metric: [sum, count]}, what was kept of the predictions); None if the
    evaluation was stopped.
  """
  totals: dict[str, list[float]] = {}
  kept = pending = None

  def take(number, results):
    sums, predictions = jax.device_get(results)
    add(totals, sums)
    if part := name_part(number):
      add(totals, {f'{name}/{part}': sums[name] for name in sums})
    return collect(kept, number, predictions)

  for i, batch in enumerate(batches):
    if batch is None:
      return None
    results = step(params, batch)
    if pending is not None:
      kept = take(i - 1, pending)
    pending = results
  if pending is not None:
    kept = take(i, pending)
  return totals, kept


def add(totals: dict[str, list[float]], sums: dict):
  """Adds {name: (sum, count)} to running totals."""
  for name, (total, count) in sums.items():
    entry = totals.setdefault(name, [0.0, 0.0])
    entry[0] += float(total)
    entry[1] += float(count)


def compute_means(
  totals: dict[str, list[float]],
  losses: tuple[str, ...],
  derive: Callable[[dict], dict],
) -> dict[str, float]:
  """Divides totals by their counts.

  Args:
    totals: {metric: [sum, count]}.
    losses: names of the metrics whose sum is `loss`.
    derive: see `task.Task`.

  Returns:
    {metric: value}, with `loss` and the metrics that the task derives.
  """
  means = {name: total / max(n, 1) for name, (total, n) in totals.items()}
  means['loss'] = sum(means[name] for name in losses)
  return {**means, **derive(means)}
