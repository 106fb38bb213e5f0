"""Data parallelism by `shard_map`: each device has its rows, all parameters.

It is explicit because kernels cannot be partitioned automatically, and so that
the collectives are exactly those written here.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.model import precision
from bert_jax.parallel import collectives, device_mesh, partition


def round_shards(params: Any, mesh: Mesh, dtype: str):
  """Rounds parameters to the type they are computed in, before the all-gather.

  Each device rounds its own shard, and bfloat16 halves the bytes sent.

  Args:
    params: float32 parameters, sharded as in `partition.stored_shardings`, as
      is the result.
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
    out_specs: how the devices' results form global ones, see `jax.shard_map`.

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
