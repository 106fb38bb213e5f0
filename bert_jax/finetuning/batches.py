"""The batches of a run: which rows they have, and how long they are.

By length, windows of the shuffled rows are sorted by length, and the batches of a
window are shuffled again. A batch is as long as its longest row needs, in one of a
few lengths, so that all are compiled before the first step. More padding would not
change its loss.
"""

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax.data import hashing
from bert_jax.finetuning import encode
from bert_jax.trainer import task

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

  >>> list_lengths(task.Phase(0, 0, 1, 128, 32, 1, 1, 0.15, 1e4))
  (16, 32, 64, 96, 128)
  """
  longest = phase.seq_length
  shorter = {-int(-longest * x // _MULTIPLE) * _MULTIPLE for x in _SHARES}
  return (*sorted(x for x in shorter if x < longest), longest)


def pays(phase: task.Phase, model: config_dict.ConfigDict) -> bool:
  """Returns whether batches by length save more time than compiling them takes."""
  tokens = phase.steps * phase.batch_size * phase.seq_length
  worth = _CPU_WORTH if jax.default_backend() == 'cpu' else _WORTH
  return tokens * model.num_layers * model.hidden_size**2 > worth


def choose_length(phase: task.Phase, lengths: np.ndarray) -> int:
  """Returns the length of a batch whose rows have these tokens, int [B]."""
  allowed = list_lengths(phase)
  return allowed[int(np.searchsorted(allowed, lengths.max()))]


class Batches:
  """The batches that a run learns from. It can be pickled."""

  def __init__(
    self, seed: int, split: encode.Rows, pad_id: int, by_length: bool
  ):
    self._seed = int(hashing.mix(seed, _ORDER)[0] >> np.uint64(1))
    self._split, self._pad_id, self._by_length = split, pad_id, by_length
    self._lengths = split.lengths
    self._window: tuple[tuple, np.ndarray] | None = None  # the last one

  def train_batch(
    self, phase: task.Phase, step: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of a step's global batch; None is all."""
    records, length = self.find_batch(phase, step)
    records = records if rows is None else records[rows]
    return self._split.make_batch(records, length, self._pad_id)

  def find_batch(self, phase: task.Phase, step: int) -> tuple[np.ndarray, int]:
    """Returns (rows of the split in a step's batch, int64 [B]; its length)."""
    number = step - phase.first
    if not self._by_length:
      return self._shuffle(phase, number, 1), phase.seq_length
    first, batches = self._find_window(phase, number)
    if self._window is None or self._window[0] != (phase, first):
      self._window = (phase, first), self._sort(phase, first, batches)
    records = self._window[1][number - first]
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

  def _shuffle(self, phase, first, batches) -> np.ndarray:
    rows = np.arange(phase.batch_size * batches) + first * phase.batch_size
    return hashing.find_records(self._seed, rows, len(self._lengths))[0]

  def _sort(self, phase, first, batches) -> np.ndarray:
    """Returns the records of the batches from `first` on, [batches, B]."""
    records = self._shuffle(phase, first, batches)
    # Rows of a class need the same length of batch, and stay shuffled.
    classes = np.searchsorted(list_lengths(phase), self._lengths[records])
    by_length = np.argsort(classes, kind='stable')
    keys = hashing.mix(self._seed, _BATCHES, first + np.arange(batches))
    records = records[by_length].reshape(batches, phase.batch_size)
    return records[np.argsort(keys)]


def make_rows(
  split: encode.Rows, size: int, pad_id: int, by_length: bool
) -> task.Rows:
  """Returns the rows of a split that a model predicts, in batches of `size`."""
  lengths, order = split.lengths, np.arange(split.size)
  if by_length:
    order = np.argsort(lengths, kind='stable')
  batches = np.split(order, range(size, split.size, size))

  def eval_batch(phase, i, rows=None):
    these, length = batches[i], phase.seq_length
    rows = np.arange(size) if rows is None else rows
    if by_length:
      length = choose_length(phase, lengths[these])
    chosen = these[np.minimum(rows, len(these) - 1)]
    batch = split.make_batch(chosen, length, pad_id)
    batch['label_weights'][rows >= len(these)] = 0
    return batch

  return task.Rows(
    eval_batch,
    eval_batches=lambda phase: len(batches),
    collect=lambda kept, phase, i, outputs: split.keep(
      kept, batches[i], outputs
    ),
  )
