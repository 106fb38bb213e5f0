"""Held-out evaluation: sums over all batches, divided once."""

import math
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

  The device computes a batch while the previous one's results are read.

  Args:
    step: (params, batch) -> (sums, predictions), see `step.eval_step`.
    params: the model's parameters.
    batches: batches on the devices; a None among them stops the evaluation.
    task: turns sums and predictions into metrics.
    losses: names of the objective's losses.
    phase: the phase of the batches.

  Returns:
    {metric: value}, without the task's scores if the loss is not finite; None
    if the evaluation was stopped.
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
  means = compute_means(totals, losses, task.derive)
  if not math.isfinite(means['loss']):
    return means
  return {**means, **task.score(kept)}


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
