"""Which rows a run takes: a sample of a file, and rows held out, by hashes."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.data import hashing

_HELD_OUT, _SAMPLE = 4, 6  # tags of hashes


def take_sample(groups: Sequence[int], most: int) -> np.ndarray:
  """Returns the numbers of at most `most` rows, ascending; 0 is all of them.

  Samples of one file grow: a larger one has the rows of a smaller one. Groups are
  whole, but for the last one taken.

  Args:
    groups: number of each row's group, such as its document.
  """
  keys = hashing.mix(_SAMPLE, np.asarray(groups))
  return np.sort(np.argsort(keys, kind='stable')[: most or None])


def hold_out(
  path: str,
  share: float,
  groups: Sequence[int],
  labels: Sequence[str | float] = (),
) -> np.ndarray:
  """Returns which training rows are held out for dev, bool [N].

  They do not depend on the run's seed. Groups are whole. With labels, of each
  row, the share is of every class, each of which keeps a row to train on; or,
  of numbers, of any range of them.

  Args:
    groups: number of each row's group, such as its document.
    labels: classes or numbers of the rows; () if they have none.

  Raises:
    errors.UserError: if all rows or none would be held out.
  """
  units, first, unit_of = np.unique(
    groups, return_index=True, return_inverse=True
  )
  order = np.argsort(hashing.mix(_HELD_OUT, units), kind='stable')
  candidates = order
  if len(labels):
    known = np.array(labels)[first]
    order = order[np.argsort(known[order], kind='stable')]
    same = known[order][1:] == known[order][:-1]
    numbers = np.issubdtype(known.dtype, np.number)
    candidates = order if numbers else order[1:][same]
  # Evenly spread over the rows in the order of their labels.
  ends = np.arange(len(candidates) + 1) * share * len(units)
  ends = np.floor(ends / max(len(candidates), 1) + 1e-9)
  chosen = candidates[ends[1:] > ends[:-1]]
  if len(chosen) in (0, len(units)):
    raise errors.UserError(
      f'{path} has {len(groups)} rows, of which data.heldout={share} holds out '
      f'{len(chosen)}; change it, or give a file: dev=FILE.'
    )
  return np.isin(unit_of, chosen)


def find_repeated(
  train: Iterable[Hashable], others: Iterable[Hashable]
) -> list[int]:
  """Returns the numbers of the other rows that are training rows, too."""
  known = set(train)
  return [i for i, row in enumerate(others) if row in known]


def choose_groups(
  found: dict[str, Any],
  share: float,
  most: int,
  group: Callable[[Any], Sequence[int]],
  take: Callable[[Any, Sequence[int]], Any],
) -> dict[str, Any]:
  """Returns files with dev held out of train, if there is none, and sampled.

  Args:
    found: {split: content of its file}.
    share: data.heldout
    most: data.max_documents
    group: (content) -> number of each row's group, such as its document.
    take: (content, numbers of rows) -> the content of these rows.

  Raises:
    errors.UserError: as `hold_out`.
  """
  found = dict(found)
  if 'dev' not in found:
    whole = found['train']
    out = hold_out(whole.path, share, group(whole))
    for split, chosen in (('train', ~out), ('dev', out)):
      found[split] = take(whole, np.flatnonzero(chosen))
  return {
    split: take(content, take_sample(group(content), most))
    for split, content in found.items()
  }
