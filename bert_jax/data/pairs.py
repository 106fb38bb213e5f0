"""Sentence pairs for next sentence prediction, by Google's procedure."""

import random
from collections.abc import Iterator
from typing import NamedTuple

Sentences = list[list[int]]  # token ids of each sentence of a document


class Pair(NamedTuple):
  """Two texts as token ids, without [CLS] and [SEP]."""

  first: list[int]
  second: list[int]
  is_random: bool


def pairs(
  documents: list[Sentences],
  index: int,
  *,
  key: str,
  max_seq_length: int,
  short_seq_prob: float,
) -> Iterator[Pair]:
  """Yields the pairs of one document in one pass.

  Sentences are collected until they fill a target length, which is drawn once
  per document. They are split at a random point; the rest is the second text,
  or, in half of the cases and always when there is a single sentence, text
  from a random other document, and then the unused sentences are put back.

  Args:
    documents: the documents of a logical shard; random texts come from them.
    index: which one to cut.
    key: names the random choices; the same key gives the same pairs.
    max_seq_length: tokens of a pair with [CLS] and two [SEP], at most.
    short_seq_prob: probability of a shorter target.
  """
  rng = random.Random(key)
  room = max_seq_length - 3
  target = room
  if rng.random() < short_seq_prob:
    target = rng.randint(2, room)
  document = documents[index]
  chunk: Sentences = []
  length = 0
  i = 0
  while i < len(document):
    chunk.append(document[i])
    length += len(document[i])
    if i == len(document) - 1 or length >= target:
      split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
      first = [t for sentence in chunk[:split] for t in sentence]
      is_random = len(chunk) == 1 or rng.random() < 0.5
      if is_random:
        second = _random_text(documents, index, target - len(first), rng)
        i -= len(chunk) - split
      else:
        second = [t for sentence in chunk[split:] for t in sentence]
      _truncate(first, second, room, rng)
      if first and second:
        yield Pair(first, second, is_random)
      chunk, length = [], 0
    i += 1


def _random_text(documents, index, target, rng) -> list[int]:
  """Returns sentences from a random start in another document."""
  for _ in range(10):
    other = rng.randrange(len(documents))
    if other != index:
      break
  source = documents[other]
  text: list[int] = []
  for sentence in source[rng.randrange(len(source)) :]:
    text.extend(sentence)
    if len(text) >= target:
      break
  return text


def _truncate(first, second, room, rng):
  """Shortens the longer text, each time at its front or its back."""
  sizes = [len(first), len(second)]
  fronts = [0, 0]
  while sum(sizes) > room:
    longer = 0 if sizes[0] > sizes[1] else 1
    sizes[longer] -= 1
    fronts[longer] += rng.random() < 0.5
  for text, size, front in zip((first, second), sizes, fronts, strict=True):
    text[:] = text[front : front + size]
