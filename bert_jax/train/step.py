"""One update of the parameters, and one batch of evaluation."""

import functools
from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from bert_jax.model import precision
from bert_jax.parallel import device_mesh, partition
from bert_jax.train import device_rows, gradient, optimizer, tuning
from bert_jax.train import task as task_lib

_RNG = {'threefry': 'threefry2x32', 'rbg': 'rbg'}


@flax.struct.dataclass
class TrainState:
  """What training changes.

  Attributes:
    step: int32, number of updates, skipped ones included.
    params: of the model, float32.
    opt_state: of `optimizer.make`.
  """

  step: jax.Array
  params: Any
  opt_state: Any


def init_state(key, *, task: task_lib.Objective, tx) -> TrainState:
  """Returns the state before the first update."""
  params = task.init(key)
  return TrainState(jnp.zeros((), jnp.int32), params, tx.init(params))


def run_key(config):
  """Returns the key that the randomness of every step comes from."""
  return jax.random.key(config.seed, impl=_RNG[config.rng])


def jit_train(config, task: task_lib.Objective, phase: task_lib.Phase, mesh):
  """Returns the update of a phase: (state, batch, key) -> (state, metrics).

  Args:
    config: of `tuning.resolve`.
    task: what to learn.
    phase: one of `task.list_phases`.
    mesh: of `device_mesh.make_mesh`.
  """
  step = functools.partial(
    train_step,
    task=task,
    tx=optimizer.make(config.optimizer),
    schedule=optimizer.schedule(config.optimizer, sum(config.phases.steps)),
    parts=phase.accumulate,
    mesh=mesh,
    clip=optimizer.make_clip(config.optimizer),
    dtype=config.model.dtype,
    reduce_dtype=config.optimizer.reduce_dtype,
  )
  return _jit(config, step, donate_argnums=0)


def jit_eval(config, task: task_lib.Objective, mesh):
  """Returns the evaluation of a batch: (params, batch) -> sums.

  Args and what is returned: as `jit_train` and `eval_step`.
  """
  step = functools.partial(
    eval_step, task=task, mesh=mesh, dtype=config.model.dtype
  )
  return _jit(config, step)


def _jit(config, step, **how):
  """Jits a step, to be traced and compiled as the config asks for."""

  @functools.wraps(step.func)
  def traced(*args):
    with precision.set_products(config):
      return step(*args)

  options = tuning.get_xla_options(config) or None
  return jax.jit(traced, compiler_options=options, **how)


def train_step(
  state: TrainState,
  batch,
  key,
  *,
  task: task_lib.Objective,
  tx,
  schedule,
  parts,
  mesh=None,
  clip=None,
  dtype='float32',
  reduce_dtype='float32',
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
    tx: of `optimizer.make`; its state must not follow what is not `finite`.
    schedule: of `optimizer.schedule`.
    parts: micro-batches, see `gradient.compute`.
    mesh: of `device_mesh.make_mesh`; None is the first device alone.
    clip: of `optimizer.make_clip`.
    dtype: of activations.
    reduce_dtype: in which the devices' gradients are added.

  Returns:
    (state, metrics): metrics hold `sums`, {name: (sum, count)}, and
    `grad_norm`, `learning_rate`, `finite`.
  """
  if mesh is None:
    mesh = device_mesh.make_mesh(devices=jax.devices()[:1])
  layout = partition.state_shardings(mesh, state)
  sums, grads = gradient.compute(
    state.params,
    batch,
    jax.random.fold_in(key, state.step),
    task=task,
    mesh=mesh,
    parts=parts,
    clip=clip,
    dtype=dtype,
    reduce_dtype=reduce_dtype,
  )
  grad_norm = optax.tree.norm(grads)
  loss = sum(s[0] for s in sums.values())
  finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
  learning_rate = schedule(state.step)
  updates, opt_state = optax.with_extra_args_support(tx).update(
    grads, state.opt_state, state.params, finite=finite
  )
  params = jax.tree.map(
    lambda p, u: jnp.where(finite, p - learning_rate * u, p),
    state.params,
    updates,
  )
  metrics = {
    'sums': _named(sums, task.counts(batch)),
    'grad_norm': grad_norm,
    'learning_rate': learning_rate,
    'finite': finite,
  }
  new = TrainState(state.step + 1, params, opt_state)
  return jax.lax.with_sharding_constraint(new, layout), metrics


def eval_step(
  params, batch, *, task: task_lib.Objective, mesh, dtype: str = 'float32'
):
  """Sums the losses and hits of a batch, without dropout.

  Args:
    params: of the model, float32, sharded as the training step keeps them.
    batch: leaves [B, ...].
    task: what to learn.
    mesh: of `device_mesh.make_mesh`.
    dtype: of activations.

  Returns:
    {name: (sum, count)} over the global batch.
  """

  def local(params, rows):
    return device_rows.add_up(task.sums(params, rows, None), mesh)

  params = device_rows.round_shards(params, mesh, dtype)
  sums = device_rows.map_rows(local, mesh, params, P())(params, batch)
  return _named(sums, task.counts(batch))


def _named(sums, counts):
  named = {}
  for name, (loss, hits) in sums.items():
    named[f'{name}_loss'] = loss, counts[name]
    named[f'{name}_accuracy'] = hits, counts[name]
  return named
