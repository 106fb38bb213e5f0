"""Rows of cached features, which take the place of ids."""

import dataclasses
import functools
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class FeatureRows:
  """N rows of different lengths, end to end. Pickled without the features.

  Attributes:
    path: a .npy file: float32 [T, K, D], of the tokens of all rows.
    ends: where each row ends in it, int64 [N].
  """

  path: str
  ends: np.ndarray

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int64 [N]."""
    return np.diff(self.ends, prepend=0)

  @functools.cached_property
  def features(self) -> np.ndarray:
    """Returns the file's array, of which only what is used is read."""
    return np.load(self.path, mmap_mode='r')

  def __reduce__(self):
    return FeatureRows, (self.path, self.ends)


def make_batch(
  made: FeatureRows, rows: np.ndarray, length: int
) -> dict[str, np.ndarray]:
  """Returns `features`, float32 [B, S, K, D], and `input_mask`, int32 [B, S].

  Args: as `encode.make_batch`.
  """
  _, layers, width = made.features.shape
  batch = {
    'features': np.zeros((len(rows), length, layers, width), np.float32),
    'input_mask': np.zeros((len(rows), length), np.int32),
  }
  for k, row in enumerate(rows):
    begin, end = made.ends[row - 1] if row else 0, made.ends[row]
    batch['features'][k, : end - begin] = made.features[begin:end]
    batch['input_mask'][k, : end - begin] = 1
  return batch


def count_within(ends: np.ndarray) -> np.ndarray:
  """Returns 0, 1, ... for each row, end to end, int64 [T].

  >>> count_within(np.array([2, 5])).tolist()
  [0, 1, 0, 1, 2]
  """
  lengths = np.diff(ends, prepend=0)
  return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)


@dataclasses.dataclass(frozen=True)
class Tokens:
  """Rows of a split, and which of their tokens a model is trained on.

  Attributes:
    encoded: N rows, `encode.Encoded`.
    positions: of those tokens, each in its row, int [T].
    ends: where the tokens of each row end in `positions`, int64 [N].
  """

  encoded: Any
  positions: np.ndarray
  ends: np.ndarray


def take_all(encoded: Any) -> Tokens:
  """Returns rows, `encode.Encoded`, with all of their tokens."""
  return Tokens(encoded, count_within(encoded.ends), encoded.ends)
