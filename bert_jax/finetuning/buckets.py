"""Batches of rows of similar length, which are not padded to the longest row.

The order stays a function of the seed: windows of the shuffled rows are sorted
by length, and the batches of a window are shuffled again. A batch is as long as
its longest row needs, in one of a few lengths, so that all are compiled before
the first step. More padding would not change its loss.
"""

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.data import hashing
from bert_jax.train import task

# Lengths as shares of the longest, rounded up to multiples of so many tokens.
_SHARES, _MULTIPLE = (1 / 8, 1 / 4, 1 / 2, 3 / 4), 8
_WINDOW = 64  # batches; more would make batches even more alike
_ORDER, _BATCHES = 5, 6  # tags of hashes
# A 72nd of the FLOPs of a run, half of which takes as long as compiling four more
# lengths: 36 s on two CPU cores of 60 GFLOP/s; for accelerators a minute and 80
# TFLOP/s are assumed.
_CPU_WORTH, _WORTH = 1e11, 1e14


def list_lengths(phase: task.Phase) -> tuple[int, ...]:
  """Returns the lengths that batches of a phase may have, ascending.

  >>> list_lengths(task.Phase(0, 0, 1, 128, 32, 1, 1))
  (16, 32, 64, 96, 128)
  """
  longest = phase.seq_length
  shorter = {-int(-longest * x // _MULTIPLE) * _MULTIPLE for x in _SHARES}
  return (*sorted(x for x in shorter if x < longest), longest)


def pays(c: config_dict.ConfigDict) -> bool:
  """Returns whether batches by length save more time than compiling them takes."""
  [phase] = task.list_phases(c)
  tokens = phase.steps * phase.batch_size * phase.seq_length
  worth = _CPU_WORTH if jax.default_backend() == 'cpu' else _WORTH
  return tokens * c.model.num_layers * c.model.hidden_size**2 > worth


def describe(config: config_dict.ConfigDict) -> str:
  """Returns a clause on the lengths of a completed config's batches."""
  [phase] = task.list_phases(config)
  lengths = (phase.seq_length,)
  if config.finetuning.by_length:
    lengths = list_lengths(phase)
  return f'batches of {errors.listing([*map(str, lengths)])} tokens'


def choose_length(phase: task.Phase, lengths: np.ndarray) -> int:
  """Returns the length of a batch whose rows have these tokens, int [B]."""
  allowed = list_lengths(phase)
  return allowed[int(np.searchsorted(allowed, lengths.max()))]


def make_seed(config: config_dict.ConfigDict) -> int:
  """Returns the seed of the order in which training rows are seen."""
  return int(hashing.mix(config.seed, _ORDER)[0] >> np.uint64(1))


class Order:
  """Which records the batches have, by the records' tokens, int [N].

  Records of a batch are of similar length. The batches of the last window are
  remembered.
  """

  def __init__(self, seed: int, lengths: np.ndarray):
    self._seed, self._lengths = seed, lengths
    self._window: tuple[tuple, np.ndarray] | None = None

  def find_batch(self, phase: task.Phase, step: int) -> tuple[np.ndarray, int]:
    """Returns (records of a step's batch, int64 [B]; its length)."""
    first, batches = self._find_window(phase, step - phase.first)
    if self._window is None or self._window[0] != (phase, first):
      self._window = (phase, first), self._sort(phase, first, batches)
    records = self._window[1][step - phase.first - first]
    return records, choose_length(phase, self._lengths[records])

  def _find_window(self, phase, number) -> tuple[int, int]:
    """Returns (first batch, batches) of the window that a batch is in.

    A window holds batches that begin in one epoch, so that the same row from
    two epochs can meet only in the batch where one ends.
    """
    size, records = phase.batch_size, len(self._lengths)
    epoch = number * size // records
    begin, end = (-(-x * records // size) for x in (epoch, epoch + 1))
    first = begin + (number - begin) // _WINDOW * _WINDOW
    return first, min(_WINDOW, end - first, phase.steps - first)

  def _sort(self, phase, first, batches) -> np.ndarray:
    """Returns the records of the batches from `first` on, [batches, B]."""
    size = phase.batch_size
    rows = np.arange(first * size, (first + batches) * size)
    records, _ = hashing.find_records(self._seed, rows, len(self._lengths))
    # Rows of a class need the same length of batch, and stay shuffled.
    classes = np.searchsorted(list_lengths(phase), self._lengths[records])
    by_length = np.argsort(classes, kind='stable')
    keys = hashing.mix(self._seed, _BATCHES, first + np.arange(batches))
    return records[by_length].reshape(batches, size)[np.argsort(keys)]
