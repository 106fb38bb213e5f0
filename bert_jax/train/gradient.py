"""Computes the gradient of a global batch, with one sum over the devices."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from ml_collections import config_dict

from bert_jax.parallel import collectives, device_mesh, partition, row_keys
from bert_jax.train import device_rows, optimizer
from bert_jax.train.task import Objective, Phase


@dataclasses.dataclass(frozen=True)
class Update:
  """How a phase updates the parameters.

  Attributes:
    tx: the optimizer, from `optimizer.make`; takes the argument `finite`.
    schedule: step -> learning rate, from `optimizer.make_schedule`.
    parts: micro-batches; row r belongs to number r % parts, so that each
      device has rows of every one.
    clip: clips a micro-batch's gradient, see `optimizer.make_clip`, or None.
    dtype: type of the activations, to which the weights are rounded.
    reduce_dtype: type in which the devices' gradients are added.
  """

  objective: Objective
  mesh: Mesh
  tx: optax.GradientTransformation
  schedule: Callable[[Any], Any]
  parts: int = 1
  clip: Callable[[Any], Any] | None = None
  dtype: str = 'float32'
  reduce_dtype: str = 'float32'


def make_update(
  config: config_dict.ConfigDict, objective: Objective, phase: Phase, mesh: Mesh
) -> Update:
  """Returns the update of a phase, given its config from `tuning.resolve`."""
  return Update(
    objective=objective,
    mesh=mesh,
    tx=optimizer.make(config.optimizer),
    schedule=optimizer.make_schedule(config),
    parts=phase.accumulate,
    clip=optimizer.make_clip(config.optimizer),
    dtype=config.model.dtype,
    reduce_dtype=config.optimizer.reduce_dtype,
  )


def compute(params: Any, batch: Any, key: jax.Array, update: Update):
  """Computes the gradient of the summed losses, each divided by its count.

  The parameters are gathered from their shards once. Each device adds up the
  gradients of its rows over all micro-batches; then one reduce-scatter over the
  devices leaves each its shard (`partition.stored_spec`). With `update.clip`,
  there is one per micro-batch, since each one's global gradient is clipped.

  Args:
    params: float32, sharded.
    batch: the global batch, leaves [B, ...].
    key: random key of the update.

  Returns:
    (sums, gradients): {metric: sum}, and a tree like params, float32, sharded.
  """
  mesh, parts = update.mesh, update.parts
  shards = partition.stored_shardings(mesh, params)
  params = device_rows.round_shards(params, mesh, update.dtype)

  def of_rows(rows, counts, key, parts):
    sums, grads = _over_devices(params, rows, counts, key, parts, update)
    return sums, _reduced(grads, shards, mesh, update.reduce_dtype)

  if update.clip is None:
    return of_rows(batch, update.objective.counts(batch), key, parts)

  def micro(i, rows):
    key_i = jax.random.fold_in(key, i)
    sums, grads = of_rows(rows, update.objective.counts(rows), key_i, 1)
    return sums, update.clip(grads)

  return _add_up(micro, _split(batch, parts), parts)


def find_row_key(
  key: jax.Array, row: int, parts: int, by_micro_batch: bool
) -> jax.Array:
  """Returns the key with which `compute` draws the random numbers of a row.

  It is for a batch of that row alone, and known for threefry's keys only: with
  other keys, numbers depend on the rows' layout on the devices.

  Args:
    key: random key of the update, threefry's.
    row: its index in the global batch.
    parts: micro-batches of the update.
    by_micro_batch: whether each micro-batch is clipped (`Update.clip`).
  """
  # Row r is number r // parts of micro-batch r % parts, see `_split`.
  key = jax.random.fold_in(key, row % parts)
  if by_micro_batch:  # which is then split into one
    key = jax.random.fold_in(key, 0)
  return row_keys.for_rows(key, row // parts, 0)


def _over_devices(params, batch, counts, key, parts, update):
  """Returns (sums, gradients [data, ...] not yet summed over `data`)."""
  objective, mesh = update.objective, update.mesh

  def local(params, rows, counts, key):
    share = jax.lax.axis_index('data')

    def loss_fn(params, rows, key):
      sums, _ = objective.compute(params, rows, key)
      loss = sum(sums[k] / jnp.maximum(counts[k], 1) for k in objective.losses)
      return loss, sums

    def gradient(i, rows):
      n = len(jax.tree.leaves(rows)[0])
      key_i = row_keys.for_rows(jax.random.fold_in(key, i), share * n, share)
      grad = jax.value_and_grad(loss_fn, has_aux=True)
      (_, sums), grads = grad(params, rows, key_i)
      if parts > 1:  # so that micro-batches are added without rounding
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
      return sums, grads

    sums, grads = _add_up(gradient, _split(rows, parts), parts)
    sums = device_rows.add_up(sums, mesh)
    return sums, jax.tree.map(lambda g: g[None], grads)

  split = device_rows.map_rows(local, mesh, params, (P(), P('data')))
  return split(params, batch, counts, key)


def _reduced(grads, specs, mesh, dtype):
  """Sums gradients, leaves [data, ...], over `data`.

  If `model` were automatic here, each gradient would first be gathered over it.
  """
  stacked = jax.tree.map(
    lambda spec: P('data', *[x if x == 'model' else None for x in spec]), specs
  )
  reduce = jax.shard_map(
    lambda found: jax.tree.map(
      lambda g, spec: _reduce(g[0], spec, dtype, mesh), found, specs
    ),
    mesh=mesh,
    in_specs=(stacked,),
    out_specs=specs,
    check_vma=False,
  )
  return reduce(grads)


def _reduce(grad, spec, dtype, mesh):
  """Sums over `data`; each device keeps its shard if the array is sharded."""
  total = grad.astype(dtype)
  if 'data' in spec:
    axis, parts = spec.index('data'), mesh.shape['data']
    slices, row = device_mesh.count_slices(mesh), device_mesh.find_row(mesh)
    total = collectives.scatter(total, axis, parts, slices, row)
  elif mesh.shape['data'] > 1:
    total = jax.lax.psum(total, 'data')
  return total.astype(jnp.float32)


def _split(batch, parts):
  """Returns micro-batches, leaves [parts, B / parts, ...]."""
  return jax.tree.map(
    lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch
  )


def _add_up(function, rows, parts):
  """Returns the sum of function(i, rows of micro-batch i)."""
  one = jax.tree.map(lambda x: x[0], rows)
  if parts == 1:
    return function(0, one)

  def step(total, part):
    return jax.tree.map(jnp.add, total, function(*part)), None

  shapes = jax.eval_shape(function, 0, one)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return jax.lax.scan(step, zeros, (jnp.arange(parts), rows))[0]
