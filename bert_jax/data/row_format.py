"""Packs pairs into rows; encodes rows as records, and decodes them to arrays.

A record is a row of one or more pairs: uint16 n, then for each of the n pairs
three uint16 (is_random, tokens of the first text, tokens of the second), then
the token ids of all texts in that order, uint16 or, for a vocabulary of more
than 65,536 entries, uint32. All numbers are little-endian.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

UNIT = np.dtype('<u2')  # a record is a sequence of these
_AT_ONCE = 2048  # rows; their arrays stay in the cache


def pack(lengths: Sequence[int], room: int, most: int) -> list[list[int]]:
  """Groups pairs into rows by best fit decreasing.

  The longest pair comes first, each goes into the fullest row that has room for
  it. Rows are indexed by the room left, so the time does not grow with the
  number of open rows.

  Args:
    lengths: tokens of each pair, with [CLS] and two [SEP], from 1 to `room`.
    most: maximum of pairs per row; 1 gives each pair its own row, in order.

  Returns:
    Rows of indices into `lengths`; indices ascend within a row, and rows are
    sorted by their first index. Every index is in one row. Equal lengths give
    equal rows.

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


def encode(
  ids: np.ndarray,
  spans: np.ndarray,
  is_random: np.ndarray,
  order: np.ndarray,
  counts: np.ndarray,
) -> Iterator[bytes]:
  """Yields the record of each row.

  Args:
    ids: token ids without [CLS] and [SEP], of type `tokenizer.choose_id_type`.
    spans: [M, 2, 2] begin and end in `ids` of both texts of each pair.
    is_random: bool [M].
    order: the pairs of the first row, of the second, and so on.
    counts: [B] pairs per row.
  """
  wide = ids.itemsize // UNIT.itemsize
  units = ids.view(UNIT)
  ends = np.cumsum(counts)
  for k in range(0, len(counts), _AT_ONCE):
    n = counts[k : k + _AT_ONCE]
    last = ends[k : k + _AT_ONCE][-1]
    pair = order[last - n.sum() : last]
    yield from _encode(units, wide, spans[pair], is_random[pair], n)


def _encode(units, wide, spans, is_random, n):
  """Encodes the pairs of `spans`, in order, as rows of n pairs each."""
  sizes = spans[:, :, 1] - spans[:, :, 0]  # [M, 2]
  first = np.cumsum(n) - n  # pair of each row
  header = 1 + 3 * n
  # Each row is a header, of arbitrary units for now, and then its texts.
  starts = np.insert(spans[:, :, 0].ravel() * wide, 2 * first, 0)
  lengths = np.insert(sizes.ravel() * wide, 2 * first, header)
  out = units.take(_ranges(starts, lengths), mode='clip')
  end = np.cumsum(np.add.reduceat(lengths, 2 * first + np.arange(len(n))))
  start = np.concatenate([[0], end[:-1]])
  out[start] = n
  at = np.repeat(start + 1 - 3 * first, n) + 3 * np.arange(len(spans))
  out[at] = is_random
  out[at + 1], out[at + 2] = sizes.T
  raw = out.tobytes()
  for a, b in itertools.pairwise([0, *(end * UNIT.itemsize).tolist()]):
    yield raw[a:b]


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
  """Concatenates range(start, start + size) of all starts and sizes."""
  ends = np.cumsum(sizes)
  return np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)


def parse(found: list[bytes], most: int, id_type: np.dtype, length: int):
  """Decodes records.

  Args:
    most: N, maximum of pairs per row.
    id_type: of the token ids.
    length: S, tokens per row.

  Returns:
    n [B], pairs per row; is_random, first and second (tokens of each text)
    [B, N]; the ids of all texts in order; and [B] bool, whether each record is
    valid. Absent pairs and invalid records are 0 and have no ids.
  """
  wide = id_type.itemsize // UNIT.itemsize
  even = [r if len(r) % UNIT.itemsize == 0 else b'' for r in found]
  # Reading the header of a truncated record may go past its end.
  spare = bytes((1 + 3 * most) * UNIT.itemsize)
  units = np.frombuffer(b''.join([*even, spare]), UNIT)
  size = np.array([len(r) for r in even], int) // UNIT.itemsize
  at = (np.cumsum(size) - size)[:, None] + np.arange(1 + 3 * most)
  header = units[at].astype(int)  # [B, 1 + 3N]
  n = header[:, 0]
  used = np.arange(1 + 3 * most) < 1 + 3 * n[:, None]
  header *= used
  is_random, first, second = header[:, 1::3], header[:, 2::3], header[:, 3::3]
  tokens = (first + second).sum(1)
  good = (size > 0) & (n >= 1) & (n <= most) & (is_random <= 1).all(1)
  good &= (size == 1 + 3 * n + wide * tokens) & (tokens + 3 * n <= length)
  header *= good[:, None]
  keep = np.repeat(good, size)
  keep[at[used & good[:, None]]] = False
  ids = units[: len(keep)][keep].view(id_type)
  return n, is_random, first, second, ids, good


def lay_out(
  n: np.ndarray,
  first: np.ndarray,
  second: np.ndarray,
  length: int,
  cls_id: int,
  sep_id: int,
):
  """Makes the features of rows, without the token ids of the texts.

  Returns:
    (features, is_text): the features of a batch; and bool [B, S], whose True
    cells in row-major order are to be filled with the tokens of all texts.
  """
  present = np.arange(first.shape[1]) < n[:, None]  # [B, N]
  size = np.where(present, first + second + 3, 0)
  end = np.cumsum(size, 1)
  start = end - size
  row = np.nonzero(present)[0]  # of each pair that is present
  cls, middle, last = (x[present] for x in (start, start + first + 1, end - 1))
  position = np.arange(length, dtype=np.int32)
  real = position < end[:, -1:]  # [B, S]
  ids = np.zeros(real.shape, np.int32)
  ids[row, cls] = cls_id
  ids[row, middle] = ids[row, last] = sep_id
  text = real.copy()
  text[row, cls] = text[row, middle] = text[row, last] = False
  turn = np.zeros((len(n), length + 1), np.int32)  # a row may end at S
  turn[row, middle + 1] = 1
  turn[row, last + 1] = -1
  batch = {
    'input_ids': ids,
    'input_mask': real.astype(np.int32),
    'segment_ids': np.cumsum(turn, 1, np.int32)[:, :length],
    'next_sentence_weights': present.astype(np.float32),
  }
  if first.shape[1] > 1:
    begins = np.zeros_like(ids)
    begins[row, cls] = 1
    sequence = np.cumsum(begins, 1, np.int32) * real
    begin = np.take_along_axis(start, np.maximum(sequence - 1, 0), 1)
    batch['sequence_ids'] = sequence
    batch['position_ids'] = ((position - begin) * real).astype(np.int32)
    batch['cls_positions'] = np.where(present, start, 0).astype(np.int32)
  return batch, text
