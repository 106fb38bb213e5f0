"""Computes the loss and the gradient of each row of a batch by itself.

They add up to the loss and the gradient of the batch, so they show which rows
made it large or not finite.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import config_dict

from bert_jax.model import precision
from bert_jax.train import gradient
from bert_jax.train import step as step_lib
from bert_jax.train import task as task_lib

_EXACT_RNG = 'threefry'  # whose numbers depend on the row alone


@dataclasses.dataclass(frozen=True)
class RowGradients:
  """What each of the B rows of a batch contributes to its update.

  Attributes:
    losses: float64 [B]; a row's sum of each loss divided by the batch's count.
      They add up to the batch's loss.
    grad_norms: float64 [B], norms of the gradients of `losses`.
    grad_norm: norm of the sum of these gradients, which is the batch's gradient
      before it is clipped.
    sums: {metric: float64 [B]}.
    counts: {metric: float64 [B]}.
  """

  losses: np.ndarray
  grad_norms: np.ndarray
  grad_norm: float
  sums: dict[str, np.ndarray]
  counts: dict[str, np.ndarray]


def can_repeat_dropout(config: config_dict.ConfigDict) -> bool:
  """Returns whether the dropout of training is known for a single row."""
  return config.rng == _EXACT_RNG


def find_key(
  config: config_dict.ConfigDict, phase: task_lib.Phase, step: int, row: int
) -> jax.Array | None:
  """Returns the random key of a row in an update, for a batch of that row.

  Args:
    config: the experiment.
    phase: the phase of the update.
    step: updates before this one.
    row: index of the row in the global batch.

  Returns:
    The key; None, which turns dropout off, if its random numbers depend on the
    devices.
  """
  if not can_repeat_dropout(config):
    return None
  return gradient.find_row_key(
    jax.random.fold_in(step_lib.run_key(config), step),
    row,
    phase.accumulate,
    config.optimizer.clip_unit == 'micro_batch',
  )


def compute(
  config: config_dict.ConfigDict,
  objective: task_lib.Objective,
  phase: task_lib.Phase,
  params: Any,
  batch: task_lib.Batch,
  step: int,
  done: Callable[[int], None],
) -> RowGradients:
  """Computes the gradients on one device, one row at a time.

  The device holds the parameters, the gradient of a row and the gradients' sum,
  and the activations of one row.

  Args:
    config: the phase's config from `tuning.resolve`.
    objective: what to learn, see `task.Objective`.
    phase: the phase of the batch.
    params: the model's parameters, float32.
    batch: the global batch, leaves [B, ...], on the host.
    step: updates before this one; the random numbers depend on it.
    done: called with 1 after each row.
  """
  params = precision.cast(params, config.model.dtype)
  # Placed, as the sums that follow, or the second row would be compiled anew.
  total = jax.device_put(
    jax.tree.map(lambda x: np.zeros(x.shape, np.float32), params),
    jax.devices()[0],
  )
  # Divided by the counts of the whole batch, as in training.
  counts = jax.device_get(objective.counts(jax.tree.map(jnp.asarray, batch)))
  add_row = jax.jit(
    functools.partial(_add_row, config, objective, counts), donate_argnums=1
  )
  found = []
  for i in range(len(batch['input_mask'])):
    row = {name: x[i : i + 1] for name, x in batch.items()}
    key = find_key(config, phase, step, i)
    total, facts = add_row(params, total, row, key)
    found.append(jax.device_get(facts))
    done(1)
  stacked = jax.tree.map(lambda *x: np.array(x, np.float64), *found)
  return RowGradients(**stacked, grad_norm=float(optax.tree.norm(total)))


def _add_row(config, objective, counts, params, total, row, key):
  """Returns (total with the gradient of a row, facts about the row)."""

  def loss_fn(params):
    sums, _ = objective.compute(params, row, key)
    return sum(
      sums[name] / max(counts[name], 1.0) for name in objective.losses
    ), sums

  with precision.set_products(config):
    grad = jax.value_and_grad(loss_fn, has_aux=True)
    (loss, sums), grads = grad(params)
  grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
  return jax.tree.map(jnp.add, total, grads), {
    'losses': loss,
    'grad_norms': optax.tree.norm(grads),
    'sums': sums,
    'counts': objective.counts(row),
  }
