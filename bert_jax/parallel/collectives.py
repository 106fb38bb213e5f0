"""All-gather and reduce-scatter along `data`, for use inside a shard_map.

libtpu implements a reduce-scatter over a whole slice of 16 chips or more as an
all-reduce, which sends twice the bytes, and makes no reduce-scatter
asynchronous. Where rows and columns of devices are known, large arrays are
therefore added up by permutations around these rings: they run beside the
computation, and use the links of both axes at once. Elsewhere collectives run
in stages over groups of about sqrt(devices). With several slices, only shards
cross the network between them: gradients are first scattered within each slice,
and weights are last gathered within each.
"""

import math

import jax

_ONE_STAGE = 8  # devices of a slice, at most
_LARGE = 2**18  # values of an array for which rings pay


def gather(x: jax.Array, axis: int, parts: int, slices: int, row: int = 0):
  """Returns the whole array of which each device has a shard, x.

  Args:
    axis: the sharded axis, in the order of the devices.
    parts: devices along `data`.
    slices: TPU slices, outermost in `data`; 0 for other devices.
    row: devices of a row, see `device_mesh.find_row`.
  """
  flat, where = _flat(x.shape, axis)
  whole = x.reshape(flat)
  for groups in [None] if row else reversed(_stages(parts, slices)):
    whole = jax.lax.all_gather(
      whole, 'data', axis=where, tiled=True, axis_index_groups=groups
    )
  if slices > 1:
    whole = _swap(whole, where, parts // slices, slices)
  shape = list(x.shape)
  shape[axis] *= parts
  return whole.reshape(shape)


def scatter(x: jax.Array, axis: int, parts: int, slices: int, row: int = 0):
  """Returns this device's shard along `axis` of the sum of all devices' x.

  Other arguments are those of `gather`.
  """
  flat, where = _flat(x.shape, axis)
  share = x.reshape(flat)
  if uses_rings(x.shape, axis, row):
    share = _scatter_by_rings(share, where, parts // row, row)
  else:
    if slices > 1:
      share = _swap(share, where, slices, parts // slices)
    for groups in _stages(parts, slices):
      how = dict(scatter_dimension=where, tiled=True, axis_index_groups=groups)
      share = jax.lax.psum_scatter(share, 'data', **how)
  shape = list(x.shape)
  shape[axis] //= parts
  return share.reshape(shape)


def uses_rings(shape: tuple[int, ...], axis: int, row: int) -> bool:
  """Returns whether `scatter` adds up arrays of this shape around rings."""
  flat, where = _flat(shape, axis)
  large = math.prod(shape) >= _LARGE
  return row > 0 and large and len(flat) > 1 and flat[where - 1] % 2 == 0


def _scatter_by_rings(x, axis, k, m):
  """Adds up one half along columns, then rows, the other half vice versa.

  Together they use all links. Device (a, b), in row a of k and column b of m,
  ends with part a m + b of both.
  """
  a, b = divmod(jax.lax.axis_index('data'), m)
  places = [(r, c) for r in range(k) for c in range(m)]
  columns = k, a, [(r * m + c, (r + 1) % k * m + c) for r, c in places]
  rows = m, b, [(r * m + c, r * m + (c + 1) % m) for r, c in places]
  other = (axis - 1) % len(x.shape)
  half = x.shape[other] // 2
  first = _around(_around(x, axis, columns, {other: (0, half)}), axis, rows)
  split = x.reshape(*x.shape[:axis], k, m, -1, *x.shape[axis + 1 :])
  other += 2 * (other > axis)
  second = _around(split, axis + 1, rows, {other: (half, half)})
  second = _around(second, axis, columns).reshape(first.shape)
  return jax.lax.concatenate([first, second], (axis - 1) % len(x.shape))


def _around(x, axis, ring, half=None):
  """Returns this device's part along `axis` of the sum over a ring.

  Args:
    ring: (devices, this device's place, pairs of device and next device).
    half: {another axis: (start, size)} to take of x; by default all.
  """
  count, place, pairs = ring
  each = x.shape[axis] // count

  def part(back):
    taken = {**(half or {}), axis: ((place - back) % count * each, each)}
    whole = ((0, size) for size in x.shape)
    cut = [taken.get(i, pair) for i, pair in enumerate(whole)]
    return jax.lax.dynamic_slice(x, *zip(*cut, strict=True))

  total = part(1)
  for back in range(2, count + 1):
    total = jax.lax.ppermute(total, 'data', pairs) + part(back)
  return total


def _stages(parts, slices):
  """Returns the groups of devices of each stage of a reduce-scatter.

  Call device a k + b of a slice (a, b). The first stage is over the devices of
  equal b and leaves part a of the array; the second is over the devices of
  equal a and leaves part b of that; the third is over the devices with equal a
  and b in all slices and leaves the slice's part.
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
