"""Packs pairs into rows, and lays rows out as arrays."""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.pairs import SPECIAL_TOKENS


def pack(lengths: Sequence[int], room: int, most: int) -> list[list[int]]:
  """Groups pairs into rows by best fit decreasing.

  The longest pair comes first, each goes into the fullest row that has room for
  it. Rows are indexed by the room left, so the time does not grow with the
  number of open rows.

  Args:
    lengths: tokens of each pair, with [CLS] and two [SEP], from 1 to `room`.
    most: maximum of pairs per row, which are indices into `lengths`, ascending.

  >>> pack([5, 3, 6, 2], room=8, most=3)
  [[0, 1], [2, 3]]
  """
  if not len(lengths):
    return []
  sizes = np.asarray(lengths)
  least = int(sizes.min())
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


def lay_out(
  counts: np.ndarray,
  sizes: np.ndarray,
  most: int,
  length: int,
  cls_id: int,
  sep_id: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
  """Makes the features of rows, without the token ids of the texts.

  Args:
    counts: [B] pairs per row, at most N (`most`).
    sizes: [M, 2] tokens of both texts of each pair, row by row.
    length: S, tokens per row.

  Returns:
    The features; is_text, bool [B, S], whose True cells in row-major order are to
    be filled with the tokens of all texts; present, bool [B, N], of the pairs.
  """
  present = np.arange(most) < counts[:, None]  # [B, N]
  size = np.zeros(present.shape, int)
  size[present] = sizes.sum(1) + SPECIAL_TOKENS
  end = np.cumsum(size, 1)
  start = end - size
  row = np.nonzero(present)[0]  # of each pair
  cls, last = start[present], end[present] - 1  # [M]
  middle = cls + sizes[:, 0] + 1
  position = np.arange(length, dtype=np.int32)
  real = position < end[:, -1:]  # [B, S]
  ids = np.zeros(real.shape, np.int32)
  ids[row, cls] = cls_id
  ids[row, middle] = ids[row, last] = sep_id
  text = real.copy()
  text[row, cls] = text[row, middle] = text[row, last] = False
  turn = np.zeros((len(ids), length + 1), np.int32)  # a row may end at S
  turn[row, middle + 1] = 1
  turn[row, last + 1] = -1
  batch = {
    'input_ids': ids,
    'input_mask': real.astype(np.int32),
    'segment_ids': np.cumsum(turn, 1, np.int32)[:, :length],
    'next_sentence_weights': present.astype(np.float32),
  }
  if most > 1:
    begins = np.zeros_like(ids)
    begins[row, cls] = 1
    sequence = np.cumsum(begins, 1, np.int32) * real
    begin = np.take_along_axis(start, np.maximum(sequence - 1, 0), 1)
    batch['sequence_ids'] = sequence
    batch['position_ids'] = ((position - begin) * real).astype(np.int32)
    batch['cls_positions'] = np.where(present, start, 0).astype(np.int32)
  return batch, text, present
