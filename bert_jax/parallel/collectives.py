"""All-gather and reduce-scatter along `data`, for use inside a shard_map.

On TPUs they run in stages. libtpu implements a reduce-scatter over a whole
slice of 16 chips or more, and some all-gathers, as an all-reduce. Over groups
of about sqrt(devices) it does not, which halves the bytes sent. With several
slices, only shards cross the network between them: gradients are first
scattered within each slice, and weights are last gathered within each.
"""

import math

import jax

_ONE_STAGE = 8  # devices of a slice, at most


def gather(x: jax.Array, axis: int, parts: int, slices: int):
  """Returns the whole array of which each device has a shard.

  Args:
    x: this device's shard.
    axis: the sharded axis, in the order of the devices.
    parts: devices along `data`.
    slices: TPU slices, outermost in `data`; 0 for other devices.
  """
  flat, where = _flat(x.shape, axis)
  whole = x.reshape(flat)
  for groups in reversed(_stages(parts, slices)):
    whole = jax.lax.all_gather(
      whole, 'data', axis=where, tiled=True, axis_index_groups=groups
    )
  if slices > 1:
    whole = _swap(whole, where, parts // slices, slices)
  shape = list(x.shape)
  shape[axis] *= parts
  return whole.reshape(shape)


def scatter(x: jax.Array, axis: int, parts: int, slices: int):
  """Returns this device's shard of a sum over `data`.

  Args:
    x: this device's summand, a whole array.
    axis: the axis to shard.
    parts, slices: as in `gather`.
  """
  flat, where = _flat(x.shape, axis)
  share = x.reshape(flat)
  if slices > 1:
    share = _swap(share, where, slices, parts // slices)
  for groups in _stages(parts, slices):
    how = dict(scatter_dimension=where, tiled=True, axis_index_groups=groups)
    share = jax.lax.psum_scatter(share, 'data', **how)
  shape = list(x.shape)
  shape[axis] //= parts
  return share.reshape(shape)


def _stages(parts, slices):
  """Returns the groups of devices of each stage of a reduce-scatter.

  Call device a k + b of a slice (a, b). The first stage is over the devices of
  equal b and leaves part a of the array; the second is over those of equal a
  and leaves part b of that; the third is over the devices with this (a, b) in
  all slices and leaves the slice's part.
  """
  if not slices:
    return [None]
  each = parts // slices
  k = max(n for n in range(1, math.isqrt(each) + 1) if each % n == 0)
  if each == 1:
    stages = []
  elif each <= _ONE_STAGE or k == 1:
    stages = [[list(range(each))]]
  else:
    rows = [list(range(first, first + k)) for first in range(0, each, k)]
    stages = [[list(column) for column in zip(*rows, strict=True)], rows]
  starts = range(0, parts, each)
  stages = [
    [[start + d for d in group] for start in starts for group in groups]
    for groups in stages
  ]
  if slices > 1:
    stages.append([[start + d for start in starts] for d in range(each)])
  return stages


def _swap(x, axis, outer, inner):
  """Returns x with axis, [outer, inner, ...], as [inner, outer, ...]."""
  shape = x.shape
  parts = x.reshape(*shape[:axis], outer, inner, -1, *shape[axis + 1 :])
  return parts.swapaxes(axis, axis + 1).reshape(shape)


def _flat(shape, axis):
  """Returns (shape, axis) with the axes before and after `axis` merged.

  With more than three axes, TPUs would use an all-reduce and then slice.
  """
  before, behind = shape[:axis], shape[axis + 1 :]
  flat = [*[math.prod(before)][: len(before)], shape[axis]]
  return (*flat, *[math.prod(behind)][: len(behind)]), int(bool(before))
