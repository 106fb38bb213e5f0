"""Computes the gradient of a global batch, with one sum over the devices.

Each device has its rows and gathers all parameters, by `shard_map`: explicit,
because kernels cannot be partitioned automatically, and so that the collectives
are exactly those written here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import config_dict

from bert_jax import param_names
from bert_jax.model import precision
from bert_jax.ops import early_sums
from bert_jax.parallel import collectives, device_mesh, partition, row_keys
from bert_jax.trainer import optimizer
from bert_jax.trainer.task import Objective, Phase


@dataclasses.dataclass(frozen=True)
class Update:
  """How a phase updates the parameters."""

  objective: Objective
  mesh: Mesh
  # From `optimizer.make`; takes the argument `finite`.
  tx: optax.GradientTransformation
  # Micro-batches; row r belongs to number r % parts, so that each device has rows
  # of every one.
  parts: int = 1
  clip: Callable[[Any], Any] | None = None  # of a micro-batch's gradient
  reduce_dtype: str = 'float32'  # in which the devices' gradients are added
  # Whether gradients that go around rings are summed beside the backward pass of
  # the layers below, see `ops.early_sums`.
  early: bool = False


def make_update(
  fields: config_dict.ConfigDict, objective: Objective, phase: Phase, mesh: Mesh
) -> Update:
  """Returns the update of a phase; `fields` are `optimizer.*`."""
  return Update(
    objective=objective,
    mesh=mesh,
    tx=optimizer.make(fields),
    parts=phase.accumulate,
    clip=optimizer.make_clip(fields),
    reduce_dtype=fields.reduce_dtype,
    # Micro-batches have one sum, after the last, or after each if it is clipped.
    early=phase.accumulate == 1,
  )


def compute(params: Any, batch: Any, key: jax.Array, update: Update):
  """Computes the gradient of the summed losses, each divided by its count.

  The parameters are gathered from their shards once. Each device adds up the
  gradients of its rows over all micro-batches; then one reduce-scatter over the
  devices leaves each its shard (`partition.stored_spec`). With `update.early`,
  large gradients are reduced during the backward pass instead. With `update.clip`,
  there is one sum per micro-batch, since each one's global gradient is clipped.

  Returns (sums, gradients): {metric: sum} over the global batch, leaves [B, ...],
  and a tree like params, float32, sharded.
  """
  mesh, parts = update.mesh, update.parts
  shards = partition.stored_shardings(mesh, params)
  params = round_shards(params, mesh, update.objective.bert.dtype)
  early = _list_early(params, shards, update)

  def of_rows(rows, counts, key, parts):
    more = shards, early, update
    sums, grads = _over_devices(params, rows, counts, key, parts, *more)
    return sums, _reduced(grads, shards, early, update)

  if update.clip is None:
    return of_rows(batch, update.objective.counts(batch), key, parts)

  def micro(i, rows):
    key_i = jax.random.fold_in(key, i)
    sums, grads = of_rows(rows, update.objective.counts(rows), key_i, 1)
    return sums, update.clip(grads)

  return _add_up(micro, _split(batch, parts), parts)


def _list_early(params, specs, update) -> set[str]:
  """Returns the names of gradients that are summed during the backward pass."""
  row, specs = device_mesh.find_row(update.mesh), param_names.flatten(specs)
  return {
    name
    for name, x in param_names.flatten(params).items()
    if update.early and name.startswith('encoder/') and 'data' in specs[name]
    if collectives.uses_rings(x.shape, specs[name].index('data'), row)
  }


def _over_devices(params, batch, counts, key, parts, specs, early, update):
  """Returns (sums, gradients [data, ...]), only the early ones summed already."""
  objective, mesh = update.objective, update.mesh
  specs = param_names.flatten(specs)

  def reduce_early(name, grad):
    return _reduce(grad, specs[name], update.reduce_dtype, mesh)

  def local(params, rows, counts, key):
    share = jax.lax.axis_index('data')
    if early:
      params = early_sums.insert(params, reduce_early, early)

    def loss_fn(params, rows, key):
      sums, _ = objective.compute(params, rows, key)
      loss = sum(sums[k] / jnp.maximum(counts[k], 1) for k in objective.losses)
      return loss, sums

    def gradient(i, rows):
      n = len(jax.tree.leaves(rows)[0])
      key_i = row_keys.for_rows(jax.random.fold_in(key, i), share * n, share)
      grad = jax.value_and_grad(loss_fn, has_aux=True)
      (_, sums), grads = grad(precision.widen_words(params), rows, key_i)
      grads = early_sums.extract(grads) if early else grads
      if parts > 1:  # so that micro-batches are added without rounding
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
      return sums, grads

    sums, grads = _add_up(gradient, _split(rows, parts), parts)
    sums = add_up(sums, mesh)
    return sums, jax.tree.map(lambda g: g[None], grads)

  split = map_rows(local, mesh, params, (P(), P('data')))
  return split(params, batch, counts, key)


def _reduced(grads, specs, early, update):
  """Sums gradients, leaves [data, ...], over `data`, except the early ones.

  If `model` were automatic here, each gradient would first be gathered over it.
  """
  stacked = jax.tree.map(
    lambda spec: P('data', *[x if x == 'model' else None for x in spec]), specs
  )

  def reduce_one(name, grad, spec):
    if name in early:
      return grad[0]
    return _reduce(grad[0], spec, update.reduce_dtype, update.mesh)

  reduce = jax.shard_map(
    lambda found: param_names.map_named(reduce_one, found, specs),
    mesh=update.mesh,
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
  else:
    total = add_up(total, mesh)
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


def round_shards(params: Any, mesh: Mesh, dtype: str):
  """Rounds float32 shards to the type they are computed in, before the all-gather.

  Each device rounds its own, and bfloat16 halves the bytes sent.
  """
  specs = partition.stored_shardings(mesh, params)
  # Without the constraint, XLA would gather first and round whole arrays.
  return jax.lax.with_sharding_constraint(
    precision.round_weights(params, dtype),
    jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs),
  )


def map_rows(
  function: Callable, mesh: Mesh, params: Any, out_specs: Any
) -> Callable:
  """Maps `function` over the devices, each with its rows of the batch.

  Args:
    function: (params, rows, *others) -> results; params are gathered over
      `data`, rows are the device's [B / data, ...]. It may use collectives
      over `data`; `model` is partitioned automatically.
    params: the model's parameters, or their shapes.

  Returns:
    (params, batch, *others) of global arrays -> results; others are replicated.
  """
  shares = partition.stored_shardings(mesh, params)
  # Kernels do not work even if an automatic axis has only one device.
  axes = {'data'} if mesh.shape['model'] > 1 else {'data', 'model'}
  own = jax.tree.map(
    lambda spec: P(*[axis if axis in axes else None for axis in spec]), shares
  )

  def local(params, rows, *others):
    whole = jax.tree.map(lambda x, spec: _gather(x, spec, mesh), params, own)
    return function(whole, rows, *others)

  def mapped(params, batch, *others):
    return jax.shard_map(
      local,
      mesh=mesh,
      axis_names=axes,
      in_specs=(own, P('data'), *[P()] * len(others)),
      out_specs=out_specs,
      # With the check, each use of a parameter would all-reduce its gradient.
      check_vma=False,
    )(params, batch, *others)

  return mapped


def add_up(x: Any, mesh: Mesh):
  """Sums a tree over `data`, inside a function of `map_rows`."""
  # With several hosts, XLA rejects sums over one device.
  return jax.lax.psum(x, 'data') if mesh.shape['data'] > 1 else x


def _gather(shard, spec, mesh):
  if 'data' not in spec:
    return shard
  axis, parts = spec.index('data'), mesh.shape['data']
  slices, row = device_mesh.count_slices(mesh), device_mesh.find_row(mesh)
  return collectives.gather(shard, axis, parts, slices, row)
