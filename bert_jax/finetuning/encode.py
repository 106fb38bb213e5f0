"""Encodes texts and pairs as rows of ids, truncated to a length."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.finetuning import feature_rows
from bert_jax.tokenization import tokenizer as tokenizer_lib

_ARRAYS = 'ids', 'ends', 'firsts'


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
  truncated: int

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int64 [N]."""
    return np.diff(self.ends, prepend=0)


def pack(encoded: Encoded) -> dict[str, np.ndarray]:
  """Returns the arrays of rows by name, for a file; see `unpack`."""
  return {name: getattr(encoded, name) for name in _ARRAYS}


def unpack(arrays: dict[str, np.ndarray], truncated: int = 0) -> Encoded:
  """Returns the rows whose arrays `pack` named."""
  return Encoded(*(arrays[name] for name in _ARRAYS), truncated)


class Frame(NamedTuple):
  """The special ids of a row: before, between and after its texts."""

  start: int
  between: int
  end: int


def truncate(first: int, second: int, room: int) -> tuple[int, int]:
  """Returns how many tokens of a pair to keep: a longer text is cut first.

  The same as `longest_first` of Hugging Face's tokenizers. It differs from
  Google's code in whose token goes last if both are cut and `room` is odd: here
  the longer text (the second, if they are equal) keeps one more.

  >>> truncate(90, 10, 60), truncate(40, 90, 61), truncate(90, 40, 61)
  ((50, 10), (30, 31), (31, 30))
  """
  if first + second <= room:
    return first, second
  least = min(first, second)
  if 2 * least > room:
    short, long = room // 2, room - room // 2
  else:
    short, long = least, room - least
  return (long, short) if first > second else (short, long)


def tokenize(
  tokenizer: tokenizer_lib.Tokenizer, texts: Sequence[str]
) -> list[list[int]]:
  """Returns the ids of each text, without [CLS] and [SEP].

  '[MASK]' and other special tokens in a text become those tokens' ids, as in
  `Tokenizer.encode`.
  """
  found = tokenizer.ids(texts)
  for i, text in enumerate(texts):
    if any(token in text for token in tokenizer_lib.SPECIAL):
      found[i] = tokenizer.encode(text)['input_ids'][1:-1]
  return found


def join(
  tokenizer: tokenizer_lib.Tokenizer,
  firsts: Sequence[list[int]],
  seconds: Sequence[list[int]] | None,
  max_length: int,
  frame: Frame | None = None,
) -> Encoded:
  """Makes rows of the ids of texts, or of pairs.

  Args:
    firsts: ids of N first texts.
    seconds: ids of N second texts, or None.
    max_length: tokens, at least 5; longer rows are truncated, see `truncate`.
    frame: the special ids; None is [CLS], [SEP] and [SEP].
  """
  frame = frame or Frame(tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id)
  start, between, end = ([x] for x in frame)
  room = max_length - (2 if seconds is None else 3)
  rows, sizes, truncated = [], [], 0
  for i, a in enumerate(firsts):
    b = [] if seconds is None else seconds[i]
    kept, kept_b = truncate(len(a), len(b), room)
    truncated += kept < len(a) or kept_b < len(b)
    row = start + a[:kept] + (end if seconds is None else between)
    sizes.append(len(row))
    rows.append(row if seconds is None else row + b[:kept_b] + end)
  return Encoded(
    ids=np.fromiter(itertools.chain.from_iterable(rows), tokenizer.id_type),
    ends=np.cumsum([len(row) for row in rows], dtype=np.int64),
    firsts=np.array(sizes, np.int32),
    truncated=truncated,
  )


def make_batch(
  encoded: Encoded | feature_rows.FeatureRows,
  rows: np.ndarray,
  length: int,
  pad_id: int,
) -> dict[str, np.ndarray]:
  """Returns `input_ids`, `input_mask` and `segment_ids` of rows, int32 [B, S].

  Args:
    encoded: all rows; of cached features, see `feature_rows.make_batch`.
    rows: numbers of the batch's rows, [B].
    length: S, at least the tokens of the longest row.
  """
  if isinstance(encoded, feature_rows.FeatureRows):
    return feature_rows.make_batch(encoded, rows, length)
  shape = len(rows), length
  batch = {
    'input_ids': np.full(shape, pad_id, np.int32),
    'input_mask': np.zeros(shape, np.int32),
    'segment_ids': np.zeros(shape, np.int32),
  }
  for k, row in enumerate(rows):
    begin, end = encoded.ends[row - 1] if row else 0, encoded.ends[row]
    n = end - begin
    batch['input_ids'][k, :n] = encoded.ids[begin:end]
    batch['input_mask'][k, :n] = 1
    batch['segment_ids'][k, encoded.firsts[row] : n] = 1
  return batch
