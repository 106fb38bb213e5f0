"""Shares of arrays along `data`: gathered, or added up, inside a shard_map.

On TPUs in stages. libtpu makes an all-reduce of a reduce-scatter over all of a
slice of 16 chips or more, and of some all-gathers; over groups of about the
root of the devices each, they stay what they are and send half as much. And of
several slices, the network between them carries shares alone: gradients are
scattered within each slice first, weights gathered within each last.
"""

import math

import jax

_ONE_STAGE = 8  # devices of a slice, at most


def gather(x: jax.Array, axis: int, parts: int, slices: int):
  """Puts the shares of all devices together.

  Args:
    x: a device's share.
    axis: along which it was cut, in the order of the devices.
    parts: devices along `data`.
    slices: of TPUs, outermost in `data`; 0 for other devices.

  Returns:
    The whole array.
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
  """Adds up over the devices; each keeps its share.

  Args:
    x: what a device adds.
    axis: to cut.
    parts, slices: as in `gather`.

  Returns:
    The device's share of the sum.
  """
  flat, where = _flat(x.shape, axis)
  share = x.reshape(flat)
  if slices > 1:
    share = _swap(share, where, slices, parts // slices)
  for groups in _stages(parts, slices):
    share = jax.lax.psum_scatter(
      share,
      'data',
      scatter_dimension=where,
      tiled=True,
      axis_index_groups=groups,
    )
  shape = list(x.shape)
  shape[axis] //= parts
  return share.reshape(shape)


def _stages(parts, slices):
  """Returns the groups of devices of each stage of a scatter.

  Device a k + b of a slice first gets, from those with its b, what is to be
  a's; then, from those with its a, what is to be b's of that; then, from those
  of other slices in its place, what is to be its slice's.
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
  """Returns (shape, axis) with the axes before and behind as one.

  Of more than three axes, TPUs would add up all and then cut.
  """
  before, behind = shape[:axis], shape[axis + 1 :]
  flat = [*[math.prod(before)][: len(before)], shape[axis]]
  return (*flat, *[math.prod(behind)][: len(behind)]), int(bool(before))
