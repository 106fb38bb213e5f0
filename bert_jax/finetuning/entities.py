"""Counts entities in BIO tags, and scores them, by the rules of conlleval.

Ours instead of a library's: seqeval has had no release since 2020, and the rules
are the few lines of `find`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.finetuning import metrics


def find(tags: Sequence[str]) -> set[tuple[int, int, str]]:
  """Returns the entities of a sentence: (first word, one past the last, kind).

  As in conlleval, an I- whose kind differs from the tag before it begins an
  entity, so any sequence of tags can be scored.

  >>> sorted(find(['B-PER', 'I-PER', 'I-LOC', 'O', 'I-LOC', 'B-LOC']))
  [(0, 2, 'PER'), (2, 3, 'LOC'), (4, 5, 'LOC'), (5, 6, 'LOC')]
  """
  found, first, inside = set(), 0, ''
  for i, tag in enumerate([*tags, 'O']):
    prefix, _, kind = tag.partition('-')
    if inside and (prefix != 'I' or kind != inside):
      found.add((first, i, inside))
      inside = ''
    if kind and not inside:
      first, inside = i, kind
  return found


def count(
  truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, np.ndarray]:
  """Counts entities per kind.

  Returns:
    {kind: int [N, 3]}: entities found, predicted and there, in each sentence.
  """
  pairs = [(find(a), find(b)) for a, b in zip(truth, predicted, strict=True)]
  kinds = sorted({kind for pair in pairs for x in pair for *_, kind in x})
  counts = {kind: np.zeros((len(pairs), 3), int) for kind in kinds}
  for i, (there, given) in enumerate(pairs):
    for column, entities in enumerate((there & given, given, there)):
      for *_, kind in entities:
        counts[kind][i, column] += 1
  return counts


def score(counts: np.ndarray) -> dict[str, float]:
  """Returns precision, recall and F1 of counts [N, 3], of all kinds or one."""
  found = _divide(counts.sum(0))
  return {name: float(value) for name, value in found.items()}


def compare(counts: np.ndarray) -> dict[str, Any]:
  """Scores counts [N, 3] of sentences beside finding nothing.

  For Wilson's interval, precision is a share of the entities predicted, recall of
  those there, F1 of the mean of both.
  """
  _, given, there = counts.sum(0)
  trials = {'f1': (given + there) / 2, 'precision': given, 'recall': there}
  return metrics.compare_sums(counts, np.zeros((1, 3), int), _divide, trials)


def _divide(sums):
  """Returns the scores [...] of sums of counts [..., 3]; 0 of nothing is 0."""
  found, given, there = np.moveaxis(sums, -1, 0)
  return {
    'f1': 2 * found / np.maximum(given + there, 1),
    'precision': found / np.maximum(given, 1),
    'recall': found / np.maximum(there, 1),
  }
