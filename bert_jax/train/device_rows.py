"""Computes on each device with its own rows and the whole parameters.

A step does so by hand, in a `shard_map`: kernels cannot be partitioned
automatically, and the collectives are then those that are written here.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.model import precision
from bert_jax.parallel import collectives, device_mesh, partition


def round_shards(params: Any, mesh: Mesh, dtype: str):
  """Rounds parameters to the type they are computed in, before the gather.

  Each device rounds its own shard, and half the bytes are sent for bfloat16.

  Args:
    params: of the model, float32, sharded as `partition.stored_shardings`.
    mesh: of `device_mesh.make_mesh`.
    dtype: of activations, see `precision.cast`.

  Returns:
    The parameters, sharded as before.
  """
  # Without the constraint, XLA would gather first and then round all of each.
  return jax.lax.with_sharding_constraint(
    precision.cast(params, dtype),
    jax.tree.map(
      lambda spec: NamedSharding(mesh, spec),
      partition.stored_shardings(mesh, params),
    ),
  )


def map_rows(
  function: Callable, mesh: Mesh, params: Any, out_specs: Any
) -> Callable:
  """Returns `function` as it runs on each device, on that device's rows.

  Args:
    function: (params, rows, *others) -> results; params are gathered over
      `data`, rows are the device's [B / data, ...]. It may use collectives
      over `data`; `model` stays automatic.
    mesh: of `device_mesh.make_mesh`.
    params: of the model, for their shapes.
    out_specs: how the devices' results make global ones, see `jax.shard_map`.

  Returns:
    (params, batch, *others) of whole arrays -> results. Others are replicated.
  """
  shares = partition.stored_shardings(mesh, params)
  # Not even an axis of one device is split automatically around a kernel.
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
      # Checked, each use of a parameter would add up its gradient at once.
      check_vma=False,
    )(params, batch, *others)

  return mapped


def add_up(x: Any, mesh: Mesh):
  """Adds a tree up over `data`, inside a function of `map_rows`."""
  # XLA refuses sums over one device where there are many hosts.
  return jax.lax.psum(x, 'data') if mesh.shape['data'] > 1 else x


def _gather(shard, spec, mesh):
  if 'data' not in spec:
    return shard
  axis, parts = spec.index('data'), mesh.shape['data']
  return collectives.gather(shard, axis, parts, device_mesh.count_slices(mesh))
