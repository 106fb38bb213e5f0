"""Encodes texts and pairs as rows of ids, truncated to a length."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.model import classifier
from bert_jax.tokenization.tokenizer import SPECIAL, Tokenizer


class How(NamedTuple):
  """How texts become rows of a model.

  Attributes:
    length: tokens of a row, at most.
    form: `bert` or `gpt`, see `gpt_form`.
    spans: how answers are found in passages, if that is the task.
  """

  tokenizer: Tokenizer
  length: int
  form: str = 'bert'
  spans: classifier.Spans | None = None


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
    """Returns the tokens of each row, int64 [N]."""
    return np.diff(self.ends, prepend=0)

  def make_batch(
    self, rows: np.ndarray, length: int, pad_id: int
  ) -> dict[str, np.ndarray]:
    """Returns `input_ids`, `input_mask` and `segment_ids`, int32 [B, S].

    Args:
      length: S, at least the tokens of the longest row.
    """
    shape = len(rows), length
    batch = {
      'input_ids': np.full(shape, pad_id, np.int32),
      'input_mask': np.zeros(shape, np.int32),
      'segment_ids': np.zeros(shape, np.int32),
    }
    for k, row in enumerate(rows):
      begin, end = self.ends[row - 1] if row else 0, self.ends[row]
      n = end - begin
      batch['input_ids'][k, :n] = self.ids[begin:end]
      batch['input_mask'][k, :n] = 1
      batch['segment_ids'][k, self.firsts[row] : n] = 1
    return batch


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


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
  """Returns the ids of each text, without [CLS] and [SEP].

  '[MASK]' and other special tokens in a text become those tokens' ids, as in
  `Tokenizer.encode`.
  """
  found = tokenizer.ids(texts)
  for i, text in enumerate(texts):
    if any(token in text for token in SPECIAL):
      found[i] = tokenizer.encode(text)['input_ids'][1:-1]
  return found


def join(
  tokenizer: Tokenizer,
  firsts: Sequence[list[int]],
  seconds: Sequence[list[int]] | None,
  max_length: int,
  frame: Sequence[int] = (),
) -> Encoded:
  """Makes rows of the ids of texts, or of pairs.

  Args:
    max_length: tokens, at least 5; longer rows are truncated, see `truncate`.
    frame: ids before, between and after the texts; () is [CLS], [SEP] and [SEP].
  """
  frame = frame or (tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id)
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
  return chain(tokenizer, rows, sizes, truncated)


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
