"""Which devices take part in a collective, from the text of its op."""

import math
import re

import numpy as np


def find_group(rest: str) -> tuple[int, ...] | None:
  """Returns the devices of a collective's first group; None means all.

  Args:
    rest: the attributes of an op, see `hlo_text.Op`.
  """
  pairs = re.search(r'source_target_pairs=\{(\{[\d,{}]*\})\}', rest)
  if pairs:
    found = [(int(a), int(b)) for a, b in re.findall(r'(\d+),(\d+)', pairs[1])]
    return max(found, key=lambda pair: abs(pair[0] - pair[1]))
  listed = re.search(r'replica_groups=\{\{([\d,]*)\}', rest)
  if listed:
    return tuple(int(d) for d in listed[1].split(','))
  # [groups,devices of each]<=[8], or <=[2,4]T(1,0): cut after transposing
  iota = re.search(
    r'replica_groups=\[\d+,(\d+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?)?', rest
  )
  if iota:
    size, shape, order = iota.groups()
    if shape is None:
      return tuple(range(int(size)))
    return _cut(int(size), _numbers(shape), order and _numbers(order))
  # mesh['data'=4,'model'=2] {'data'}
  mesh = re.search(r'replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}', rest)
  if mesh:
    axes = re.findall(r"'([^']+)'=(\d+)", mesh[1])
    names, sizes = [a for a, _ in axes], [int(n) for _, n in axes]
    taken = [names.index(a) for a in re.findall(r"'([^']+)'", mesh[2])]
    left = [i for i in range(len(names)) if i not in taken]
    return _cut(math.prod(sizes[i] for i in taken), sizes, left + taken)
  return None


def _cut(size, shape, order) -> tuple[int, ...]:
  """Returns the first `size` numbers of a grid with transposed axes."""
  grid = np.arange(math.prod(shape)).reshape(shape).transpose(order)
  return tuple(grid.reshape(-1)[:size].tolist())


def _numbers(text) -> list[int]:
  return [int(n) for n in text.split(',')]
