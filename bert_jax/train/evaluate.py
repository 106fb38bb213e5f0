"""Held-out evaluation: sums over all batches, divided once."""

from collections.abc import Callable, Iterable
from typing import Any

import jax

from bert_jax.train import task as task_lib


def evaluate(
  step: Callable,
  params: Any,
  batches: Iterable,
  task: task_lib.Task,
  losses: tuple[str, ...],
  phase: task_lib.Phase,
) -> dict | None:
  """Evaluates a model on batches.

  The device computes a batch while the results of the one before are taken.

  Args:
    step: (params, batch) -> (sums, predictions), see `step.eval_step`.
    params: of the model.
    batches: on the device; None among them means that evaluation is to stop.
    task: says what to make of sums and predictions.
    losses: of its objective.
    phase: whose batches they are.

  Returns:
    {metric: value}; None if it was stopped.
  """
  totals: dict[str, list[float]] = {}
  kept = pending = None

  def take(number, results):
    sums, predictions = jax.device_get(results)
    add(totals, sums)
    return task.collect(kept, phase, number, predictions)

  for i, batch in enumerate(batches):
    if batch is None:
      return None
    results = step(params, batch)
    if pending is not None:
      kept = take(i - 1, pending)
    pending = results
  if pending is not None:
    kept = take(i, pending)
  return {**compute_means(totals, losses, task.derive), **task.score(kept)}


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
    losses: the metrics that `loss`, their sum, consists of.
    derive: see `task.Task`.

  Returns:
    {metric: value}, with `loss` and what the task derives.
  """
  means = {name: total / max(n, 1) for name, (total, n) in totals.items()}
  means['loss'] = sum(means[name] for name in losses)
  return {**means, **derive(means)}
