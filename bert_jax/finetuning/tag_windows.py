"""Encodes words for tagging, each sentence with its neighbours as context.

A sentence's row is filled up, from both sides, with what stands beside it in
its document (arXiv 1810.04805, section 5.3: "the maximal document context"). A
word is tagged at its first piece. Sentences that are too long get several rows,
so every word is tagged exactly once.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.finetuning import encode, feature_rows
from bert_jax.finetuning.readers import conll
from bert_jax.tokenization import tokenizer as tokenizer_lib


class Windows(NamedTuple):
  """N rows that tag W words, all in order.

  Attributes:
    encoded: the rows: [CLS] context words context [SEP]; of cached features,
      words alone.
    positions: where each word's first piece is in its row, int32 [W].
    word_ends: where each row's words end in `positions`, int64 [N].
  """

  encoded: encode.Encoded | feature_rows.FeatureRows
  positions: np.ndarray
  word_ends: np.ndarray


def make(
  tokenizer: tokenizer_lib.Tokenizer,
  sentences: Sequence[conll.Sentence],
  max_length: int,
) -> Windows:
  """Encodes sentences.

  Args:
    max_length: tokens of a row, at least 3.
  """
  room = max_length - 2
  cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
  rows, positions, counts = [], [], []
  for _, group in itertools.groupby(sentences, lambda x: x.document):
    pieces, spans = _tokenize(tokenizer, list(group), room)
    for words in spans:
      begin, end = words[0][0], words[-1][1]
      spare = room - (end - begin)
      left = min(begin, spare // 2)
      right = min(len(pieces) - end, spare - left)
      left = min(begin, spare - right)
      rows.append(cls + pieces[begin - left : end + right] + sep)
      positions += [1 + left + first - begin for first, _ in words]
      counts.append(len(words))
  lengths = np.array([len(row) for row in rows], np.int64)
  encoded = encode.Encoded(
    ids=np.fromiter(itertools.chain.from_iterable(rows), tokenizer.id_type),
    ends=np.cumsum(lengths),
    firsts=lengths.astype(np.int32),
    truncated=0,
  )
  return Windows(
    encoded,
    np.array(positions, np.int32),
    np.cumsum(counts, dtype=np.int64),
  )


def of_features(rows: feature_rows.FeatureRows) -> Windows:
  """Returns windows of words alone, whose features are cached."""
  return Windows(rows, feature_rows.count_within(rows.ends), rows.ends)


def _tokenize(tokenizer, sentences, room):
  """Returns (pieces of a document, [[(begin, end) of a word], ...] of rows).

  A word has at least one piece, and at most `room`.
  """
  pieces: list[int] = []
  spans: list[list[tuple[int, int]]] = []
  for sentence in sentences:
    words = []
    for ids in tokenizer.ids(sentence.words):
      begin = len(pieces)
      pieces += ids[:room] or [tokenizer.unk_id]
      words.append((begin, len(pieces)))
    spans += _split(words, room)
  return pieces, spans


def _split(words, room) -> Iterator[list[tuple[int, int]]]:
  """Yields the words of a sentence in parts of at most `room` pieces."""
  part: list[tuple[int, int]] = []
  for word in words:
    if part and word[1] - part[0][0] > room:
      yield part
      part = []
    part.append(word)
  yield part


def find_words(made: Windows, row: int) -> slice:
  """Returns which of the words a row tags."""
  return slice(made.word_ends[row - 1] if row else 0, made.word_ends[row])
