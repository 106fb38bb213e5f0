"""Shares of arrays along `data`: gathered, or added up, inside a shard_map.

libtpu makes an all-reduce of a reduce-scatter over all of a slice of 16 chips
or more, and of some all-gathers. In two stages, over groups of about the root
of the devices each, they stay what they are and send half as much.
"""

import math

import jax

_ONE_STAGE = 8  # devices, at most


def gather(x, axis: int, parts: int, two_stages: bool):
  """Puts the shares of all devices together.

  Args:
    x: a device's share.
    axis: along which it was cut, in the order of the devices.
    parts: devices along `data`.
    two_stages: whether many are asked in two stages.

  Returns:
    The whole array.
  """
  flat, where = _flat(x.shape, axis)
  whole = x.reshape(flat)
  for groups in reversed(_stages(parts, two_stages)):
    whole = jax.lax.all_gather(
      whole, 'data', axis=where, tiled=True, axis_index_groups=groups
    )
  shape = list(x.shape)
  shape[axis] *= parts
  return whole.reshape(shape)


def scatter(x, axis: int, parts: int, two_stages: bool):
  """Adds up over the devices; each keeps its share.

  Args:
    x: what a device adds.
    axis: to cut.
    parts: as in `gather`.
    two_stages: see there.

  Returns:
    The device's share of the sum.
  """
  flat, where = _flat(x.shape, axis)
  share = x.reshape(flat)
  for groups in _stages(parts, two_stages):
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


def _stages(parts, two_stages):
  """Returns the groups of devices of each stage of a scatter.

  Device a k + b first gets, from those with its b, what is to be a's; then,
  from those with its a, what is to be b's of that.
  """
  if not two_stages or parts <= _ONE_STAGE:
    return [None]
  k = max(n for n in range(1, math.isqrt(parts) + 1) if parts % n == 0)
  if k == 1:
    return [None]
  rows = [list(range(first, first + k)) for first in range(0, parts, k)]
  return [[list(column) for column in zip(*rows, strict=True)], rows]


def _flat(shape, axis):
  """Returns (shape, axis) with the axes before and behind as one.

  Of more than three axes, TPUs would add up all and then cut.
  """
  before, behind = shape[:axis], shape[axis + 1 :]
  flat = [*[math.prod(before)][: len(before)], shape[axis]]
  return (*flat, *[math.prod(behind)][: len(behind)]), int(bool(before))
