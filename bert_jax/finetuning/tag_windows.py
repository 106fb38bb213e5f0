"""Encodes words for tagging, each sentence with its neighbours as context.

A sentence's row is filled up, from both sides, with what stands beside it in
its document (arXiv 1810.04805, section 5.3: "the maximal document context"). A
word is tagged at its first piece. Sentences that are too long get several rows,
so every word is tagged exactly once.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.finetuning import encode
from bert_jax.finetuning.readers import conll
from bert_jax.tokenization import tokenizer as tokenizer_lib


def make(
  tokenizer: tokenizer_lib.Tokenizer,
  sentences: Sequence[conll.Sentence],
  max_length: int,
) -> tuple[encode.Encoded, np.ndarray, np.ndarray]:
  """Encodes sentences; returns `encoded`, `positions` and `word_ends` of `Words`.

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
  encoded = encode.chain(tokenizer, rows, [len(row) for row in rows])
  word_ends = np.cumsum(counts, dtype=np.int64)
  return encoded, np.array(positions, np.int32), word_ends


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
