"""Rows of ids of different lengths, and their batches."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.tokenization.tokenizer import Tokenizer


class Encoded(NamedTuple):
  """N rows of different lengths, end to end.

  Attributes:
    ids: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], of all rows, [T].
    ends: where each row ends in `ids`, int64 [N].
    firsts: tokens of segment 0 of each row, int32 [N].
    truncated: number of rows that were too long.
  """

  ids: np.ndarray
  ends: np.ndarray
  firsts: np.ndarray
  truncated: int = 0

  @property
  def lengths(self) -> np.ndarray:
    return np.diff(self.ends, prepend=0)

  def make_batch(
    self, rows: np.ndarray, length: int, pad_id: int
  ) -> dict[str, np.ndarray]:
    """Returns `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]."""
    shape = len(rows), length
    ids, mask, segments = (np.full(shape, x, np.int32) for x in (pad_id, 0, 0))
    for k, row in enumerate(rows):
      begin, end = self.ends[row - 1] if row else 0, self.ends[row]
      n = end - begin
      ids[k, :n], mask[k, :n] = self.ids[begin:end], 1
      segments[k, self.firsts[row] : n] = 1
    return {'input_ids': ids, 'input_mask': mask, 'segment_ids': segments}


def chain(
  tokenizer: Tokenizer,
  rows: Sequence[list[int]],
  firsts: Sequence[int],
  truncated: int = 0,
) -> Encoded:
  """Returns rows of ids end to end, see `Encoded`."""
  return Encoded(
    ids=np.fromiter(itertools.chain.from_iterable(rows), tokenizer.id_type),
    ends=np.cumsum([len(row) for row in rows], dtype=np.int64),
    firsts=np.array(firsts, np.int32),
    truncated=truncated,
  )


def round_up(tokens: int, step: int, most: int) -> int:
  """Returns a length that is a multiple of `step`, or `most`, for few shapes."""
  return min(-(-tokens // step) * step, most)


def check_length(what: str, tokens: int, most: int):
  """Raises errors.UserError for a text that is too long for a model."""
  if tokens > most:
    raise errors.UserError(
      f'{what} has {tokens} tokens with [CLS] and [SEP], the model takes {most}; '
      'shorten it.'
    )


def batch_by_length(
  lengths: np.ndarray,
  size: int,
  step: int,
  most: int,
  tokens: int | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
  """Yields batches of rows of similar length, which need little padding.

  They are the numbers of the rows, [b], at most `size`; the same, filled up with
  the last, [B]; and the length, see `round_up`.

  Args:
    tokens: of a batch, about: while `size` rows as long as its first, the
      shortest, have more, `size` is halved; None is no limit.
  """
  by_length, start = np.argsort(lengths, kind='stable'), 0
  while start < len(by_length):
    shortest = int(lengths[by_length[start]])
    while tokens and size > 1 and size * shortest > tokens:
      size = -(-size // 2)
    rows = by_length[start : start + size]
    full = np.pad(rows, (0, size - len(rows)), mode='edge')
    yield rows, full, round_up(int(lengths[rows[-1]]), step, most)
    start += size
