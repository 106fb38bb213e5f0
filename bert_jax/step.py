"""One update of the parameters, and one batch of evaluation."""

from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax

from bert_jax import task as task_lib


@flax.struct.dataclass
class TrainState:
  """What training changes.

  Attributes:
    step: int32, number of updates, skipped ones included.
    params: of the model, float32.
    opt_state: of `optim.make`.
  """

  step: jax.Array
  params: Any
  opt_state: Any


def init_state(key, *, task: task_lib.Task, tx) -> TrainState:
  """Returns the state before the first update."""
  params = task.init(key)
  return TrainState(jnp.zeros((), jnp.int32), params, tx.init(params))


def train_step(
  state: TrainState,
  batch,
  key,
  *,
  task: task_lib.Task,
  tx,
  schedule,
  parts,
  clip=None,
):
  """Makes one update.

  Each objective's loss is the sum over the global batch divided by its count
  over the global batch, whatever the devices and micro-batches. With `clip`,
  it is so for each micro-batch alone, and their clipped gradients are added.
  An update with a non-finite loss or gradient changes nothing but the step.

  Args:
    state: donated.
    batch: the global batch, leaves [B, ...].
    key: of the run; the step's randomness is folded in here.
    task: what to learn.
    tx: of `optim.make`.
    schedule: of `optim.schedule`.
    parts: micro-batches; row r belongs to number r % parts, so that each
      device finds rows of its own in every one.
    clip: of `optim.clip_parts`.

  Returns:
    (state, metrics): metrics hold `sums`, {name: (sum, count)}, and
    `grad_norm`, `learning_rate`, `finite`.
  """
  key = jax.random.fold_in(key, state.step)
  counts = task.counts(batch)

  def loss_fn(params, rows, key):
    sums = task.sums(params, rows, key)
    n = task.counts(rows) if clip else counts
    return sum(s[0] / jnp.maximum(n[k], 1) for k, s in sums.items()), sums

  def gradient(rows, i):
    (_, sums), grads = jax.value_and_grad(loss_fn, has_aux=True)(
      state.params, rows, jax.random.fold_in(key, i)
    )
    return sums, clip(grads) if clip else grads

  def micro(total, part):
    i, rows = part
    return jax.tree.map(jnp.add, total, gradient(rows, i)), None

  if parts == 1:
    sums, grads = gradient(batch, 0)
  else:
    rows = jax.tree.map(
      lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch
    )
    one = jax.tree.map(lambda x: x[0], rows)
    shapes = jax.eval_shape(gradient, one, 0)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    (sums, grads), _ = jax.lax.scan(micro, zeros, (jnp.arange(parts), rows))

  grad_norm = optax.tree.norm(grads)
  loss = sum(s[0] for s in sums.values())
  finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
  learning_rate = schedule(state.step)
  updates, opt_state = tx.update(grads, state.opt_state, state.params)
  params = jax.tree.map(
    lambda p, u: p - learning_rate * u, state.params, updates
  )
  params, opt_state = jax.tree.map(
    lambda new, old: jnp.where(finite, new, old),
    (params, opt_state),
    (state.params, state.opt_state),
  )
  metrics = {
    'sums': _named(sums, counts),
    'grad_norm': grad_norm,
    'learning_rate': learning_rate,
    'finite': finite,
  }
  return TrainState(state.step + 1, params, opt_state), metrics


def eval_step(params, batch, *, task: task_lib.Task):
  """Returns {name: (sum, count)} of a batch, without dropout."""
  return _named(task.sums(params, batch, None), task.counts(batch))


def _named(sums, counts):
  named = {}
  for name, (loss, hits) in sums.items():
    named[f'{name}_loss'] = loss, counts[name]
    named[f'{name}_accuracy'] = hits, counts[name]
  return named
