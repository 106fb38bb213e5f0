"""Packs several sentence pairs into a row, to reduce padding."""

from collections.abc import Sequence

import numpy as np


def pack(lengths: Sequence[int], room: int, most: int) -> list[list[int]]:
  """Groups pairs into rows by best fit decreasing.

  The longest pair comes first, each goes into the fullest row that has room for
  it. Rows are indexed by the room left, so the time does not grow with the
  number of open rows.

  Args:
    lengths: tokens of each pair, with [CLS] and two [SEP].
    room: tokens per row.
    most: maximum of pairs per row; 1 gives each pair its own row, in order.

  Returns:
    Rows of indices into `lengths`; indices ascend within a row, and rows are
    sorted by their first index. Every index is in one row. The same lengths
    give the same rows.

  Raises:
    ValueError: if a pair is longer than a row or empty.

  >>> pack([5, 3, 6, 2], room=8, most=3)
  [[0, 1], [2, 3]]
  """
  if not len(lengths):
    return []
  sizes = np.asarray(lengths)
  least = int(sizes.min())
  if not 1 <= least <= sizes.max() <= room:
    raise ValueError(
      f'pairs of {least} to {sizes.max()} tokens; rows take 1 to {room}.'
    )
  order = np.argsort(-sizes, kind='stable')
  rows: list[list[int]] = []
  waiting: list[list[list[int]]] = [[] for _ in range(room + 1)]  # by room left
  some = 0  # bit r is set if there are open rows with room for r tokens
  for i, n in zip(order.tolist(), sizes[order].tolist(), strict=True):
    fits = some >> n
    if fits:
      left = n + (fits & -fits).bit_length() - 1  # the lowest bit that is set
      row = waiting[left].pop()
      if not waiting[left]:
        some ^= 1 << left
    else:
      row, left = [], room
      rows.append(row)
    row.append(i)
    left -= n
    if len(row) < most and left >= least:
      waiting[left].append(row)
      some |= 1 << left
  for row in rows:
    row.sort()
  rows.sort(key=lambda row: row[0])
  return rows
