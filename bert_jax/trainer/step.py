"""One update of the parameters, and one batch of evaluation."""

import functools
from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from ml_collections import config_dict

from bert_jax.config import readings
from bert_jax.model import precision
from bert_jax.parallel import device_mesh, partition
from bert_jax.trainer import gradient
from bert_jax.trainer.task import Objective, Phase

BLOCK = 1024  # updates whose learning rates are on the devices at a time
_RNG = {'threefry': 'threefry2x32', 'rbg': 'rbg'}


@flax.struct.dataclass
class TrainState:
  """The state that training updates."""

  step: jax.Array  # int32, number of updates, skipped ones included
  params: Any  # float32
  opt_state: Any  # of the optimizer from `optimizer.make`


def init_state(
  key: jax.Array, *, objective: Objective, tx: optax.GradientTransformation
) -> TrainState:
  """Returns the state before the first update."""
  params = objective.init(key)
  return TrainState(jnp.zeros((), jnp.int32), params, tx.init(params))


def run_key(seed: int, rng: str):
  """Returns the random key of the run, from which steps derive theirs."""
  return jax.random.key(seed, impl=_RNG[rng])


def jit_rates(schedule: optax.Schedule, mesh: Mesh):
  """Returns the learning rates of `BLOCK` updates as a function of their block.

  Updates 0 to BLOCK - 1 are block 0. The rates are an argument of the training
  step, so that runs which differ in nothing else share a compiled program.
  """
  return jax.jit(
    lambda block: schedule(block * BLOCK + jnp.arange(BLOCK)),
    out_shardings=device_mesh.replicate(mesh),
  )


def jit_train(
  fields: config_dict.ConfigDict, objective: Objective, phase: Phase, mesh: Mesh
):
  """Returns the update of a phase, `train_step` without its last argument."""
  update = gradient.make_update(fields, objective, phase, mesh)
  step = functools.partial(train_step, update=update)
  return _jit(objective, step, donate_argnums=0)


def jit_eval(objective: Objective, mesh: Mesh):
  """Returns the evaluation of a batch, `eval_step` of (params, batch)."""
  return _jit(
    objective, functools.partial(eval_step, objective=objective, mesh=mesh)
  )


def _jit(objective, step, **options):
  how = objective.how

  @functools.wraps(step.func)
  def traced(*args):
    with precision.set_products(how.matmul_precision, objective.bert.dtype):
      return step(*args)

  given = readings.get_xla_options(how.xla_options) or None
  return jax.jit(traced, compiler_options=given, **options)


def train_step(
  state: TrainState,
  batch: Any,
  key: jax.Array,
  rates: jax.Array,
  update: gradient.Update,
):
  """Makes one update.

  Each loss is its sum over the global batch divided by its count over the
  global batch, for any number of devices and micro-batches. With `update.clip`,
  each micro-batch is normalised separately, and the clipped gradients are
  added. If a loss or the gradient is not finite, only the step changes.

  Args:
    state: donated.
    key: random key of the run; the step is folded in here.
    rates: learning rates of the update's block, [BLOCK], see `jit_rates`.

  Returns (state, metrics), which hold `sums`, {name: (sum, count)}, and
  `grad_norm`, `learning_rate`, `finite`.
  """
  objective = update.objective
  layout = partition.state_shardings(update.mesh, state)
  key = jax.random.fold_in(key, state.step)
  sums, grads = gradient.compute(state.params, batch, key, update)
  grad_norm = optax.tree.norm(grads)
  loss = sum(sums[name] for name in objective.losses)
  finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
  learning_rate = rates[state.step % BLOCK]
  updates, opt_state = optax.with_extra_args_support(update.tx).update(
    grads, state.opt_state, state.params, finite=finite
  )
  params = jax.tree.map(
    lambda p, u: jnp.where(finite, p - learning_rate * u, p),
    state.params,
    updates,
  )
  metrics = {
    'sums': _with_counts(sums, objective.counts(batch)),
    'grad_norm': grad_norm,
    'learning_rate': learning_rate,
    'finite': finite,
  }
  new = TrainState(state.step + 1, params, opt_state)
  return jax.lax.with_sharding_constraint(new, layout), metrics


def eval_step(params: Any, batch: Any, *, objective: Objective, mesh: Mesh):
  """Sums the metrics of a batch, without dropout, and predicts its rows.

  Returns (sums, predictions): {name: (sum, count)} over the global batch, and the
  task's predictions, leaves [B, ...], on every device.
  """

  def local(params, rows):
    sums, predictions = objective.compute(params, rows, None)
    return gradient.add_up(sums, mesh), predictions

  params = gradient.round_shards(params, mesh, objective.bert.dtype)
  mapped = gradient.map_rows(local, mesh, params, (P(), P('data')))
  sums, predictions = mapped(params, batch)
  predictions = jax.lax.with_sharding_constraint(
    predictions, device_mesh.replicate(mesh)
  )
  return _with_counts(sums, objective.counts(batch)), predictions


def _with_counts(sums: dict, counts: dict) -> dict:
  return {name: (total, counts[name]) for name, total in sums.items()}
