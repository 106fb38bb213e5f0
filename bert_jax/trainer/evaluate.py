"""Held-out evaluation: sums over all batches, divided once."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax

from bert_jax import errors
from bert_jax.trainer.task import Phase, Rows

_TOLERANCE = 0.5  # nats
_STD = 0.02  # of new weights: `model.initializer_std` by default


def evaluate(
  step: Callable, params: Any, batches: Iterable, phase: Phase, rows: Rows
) -> tuple[dict, Any]:
  """Evaluates a model on batches.

  The device computes a batch while the previous one's results are read.

  Args:
    step: (params, batch) -> (sums, predictions), see `step.eval_step`.
    batches: batches on the devices.
    rows: names the part of the data that a batch is from, and collects its
      predictions.

  Returns:
    ({metric: [sum, count]}, what was kept of the predictions).
  """
  totals: dict[str, list[float]] = {}
  kept = pending = None

  def take(i, results):
    sums, predictions = jax.device_get(results)
    add(totals, sums)
    if part := rows.name_eval_part(phase, i):
      add(totals, {f'{name}/{part}': sums[name] for name in sums})
    return rows.collect(kept, phase, i, predictions)

  for i, batch in enumerate(batches):
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
  totals: dict, losses: tuple[str, ...], derive: Callable[[dict], dict]
) -> dict[str, float]:
  """Returns {metric: mean}, with `loss` and what the task derives.

  Args:
    totals: {metric: (sum, count)}, numbers or arrays of NumPy.
    losses: names of the metrics whose sum is `loss`.
    derive: see `task.Task`.
  """
  means = {
    name: float(total) / max(float(n), 1) for name, (total, n) in totals.items()
  }
  means['loss'] = sum(means[name] for name in losses)
  return {**means, **derive(means)}


def check_first_loss(
  loss: float, expected: float | None, trained: bool, hidden_size: int
) -> str:
  """Compares the loss before any update with a guess's; returns a line on it.

  Args:
    expected: the loss of a guess; None, if unknown, accepts any loss.
    trained: whether the model starts from weights that are not random, with any
      loss.
    hidden_size: D; a wide model's guesses are less even.
  """
  said = f'initial loss {loss:.3f}'
  if expected is None:
    return said
  if trained and math.isfinite(loss):
    return f'{said}; guessing costs {expected:.3f}'
  # The tied decoder's logits have the variance D std^2, half of which is added.
  tolerance = _TOLERANCE + hidden_size * _STD**2 / 2
  if not abs(loss - expected) <= tolerance:
    raise errors.UserError(
      f'the initial loss is {loss:.3f}, but guessing costs {expected:.3f} '
      f'(+-{tolerance:.2f}); look at model.initializer_std.'
    )
  return f'{said}, expected {expected:.3f}'
