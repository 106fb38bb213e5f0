"""The files of a run in splits: read, held out for dev, sampled, compared."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from bert_jax import errors
from bert_jax.data import hashing
from bert_jax.finetuning.readers import data_files

_HELD_OUT, _SAMPLE = 4, 6  # tags of hashes


@dataclasses.dataclass(frozen=True)
class Content:
  """What a file holds, or a part of it.

  Attributes:
    path: the file.
    units: its rows, sentences or questions, in order. Each has a `name`, such as
      the number of its line, and a `key`, which only equal texts share.
    held_out: whether they are of the training file, for want of a dev file.
  """

  path: str
  units: list[Any]
  held_out: bool = False

  @property
  def origin(self) -> str:
    """Returns where the units are from, to print."""
    return f'held out of {self.path}' if self.held_out else self.path

  def list_groups(self) -> Sequence[int]:
    """Returns the number of each unit's group, which is held out as a whole."""
    return range(len(self.units))

  def list_labels(self, source: data_files.Source) -> Sequence[str | float]:
    """Returns classes or numbers by which units are held out evenly, or ()."""
    return ()

  def take(self, chosen: Sequence[int]) -> Self:
    """Returns some of the units, by number."""
    units = [self.units[i] for i in chosen]
    return dataclasses.replace(self, units=units)


def read(
  source: data_files.Source, read_file: Callable[[str, str], Content]
) -> dict[str, Content]:
  """Reads the files of a source.

  Without a dev file, a share `data.heldout` of the training units becomes `dev`,
  the same for every seed. Of more units than `data.max_documents`, a sample is
  taken.

  Args:
    read_file: (split, path) -> what the file holds.
  """
  paths = data_files.find_files(source)
  found = {split: read_file(split, path) for split, path in paths.items()}
  if 'dev' not in found:
    whole = found['train']
    groups, labels = whole.list_groups(), whole.list_labels(source)
    out = hold_out(whole.path, source.heldout, groups, labels)
    dev = whole.take(np.flatnonzero(out))
    found['train'] = whole.take(np.flatnonzero(~out))
    found['dev'] = dataclasses.replace(dev, held_out=True)
  return {
    split: x.take(take_sample(x.list_groups(), source.max_documents))
    for split, x in found.items()
  }


def find_repeated(train: Content, other: Content) -> list[Any]:
  """Returns the names of the units of a split that are training ones, too."""
  known = set() if other is train else {x.key for x in train.units}
  return [x.name for x in other.units if x.key in known]


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
