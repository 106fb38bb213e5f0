"""Batches of rows of similar length, which are not padded to the longest row.

The order stays a function of the seed: windows of the shuffled rows are sorted
by length, and the batches of a window are shuffled again. A batch is as long as
its longest row needs, in one of a few lengths, so that all are compiled before
the first step. More padding would not change its loss.
"""

import collections

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax.config import model_config
from bert_jax.data import hashing
from bert_jax.hardware import chips
from bert_jax.inference import fine_tuned
from bert_jax.train import task

# Lengths as shares of the longest, rounded up to multiples of so many tokens.
_SHARES, _MULTIPLE = (1 / 8, 1 / 4, 1 / 2, 3 / 4), 8
_WINDOW = 64  # batches; more would make batches even more alike
_ORDER, _BATCHES = 5, 6  # tags of hashes
_PLANNED = 2000  # updates whose lengths represent all
# Per CPU core: seconds to compile the programs of a length, without layers and
# per layer; FLOP/s of updates. `a71d0fb:benchmarks/measure/length_costs.py`
# finds 8.9 s for Tiny, 14.2 s for BASE, 49 and 118 GFLOP/s.
_CPU_SECONDS, _CPU_LAYER, _CPU_RATE = 8.0, 0.5, 60e9
# Assumed for accelerators, on which nothing was measured: 15 s, and two fifths
# of the peak, which for an unknown chip is 100 TFLOP/s.
_SECONDS, _SHARE, _UNKNOWN = 15.0, 0.4, 1e14


def list_lengths(phase: task.Phase) -> tuple[int, ...]:
  """Returns the lengths that batches of a phase may have, ascending.

  >>> list_lengths(task.Phase(0, 0, 1, 128, 32, 1, 1))
  (16, 32, 64, 96, 128)
  """
  longest = phase.seq_length
  found = {-int(-longest * x // _MULTIPLE) * _MULTIPLE for x in _SHARES}
  return (*sorted(x for x in found if x < longest), longest)


def pays(config: config_dict.ConfigDict, lengths: np.ndarray) -> bool:
  """Returns whether batches by length save more time than compiling them takes.

  Args:
    lengths: tokens of each training row, int [N].
  """
  [phase] = task.list_phases(config)
  planned, updates = Order(config.seed, lengths), min(phase.steps, _PLANNED)
  counts = collections.Counter(
    planned.find_batch(phase, step)[1] for step in range(updates)
  )
  module = fine_tuned.make_module(config, model_config(config))
  longest = fine_tuned.count_flops(module, phase.seq_length)
  saved = sum(
    count * (longest - fine_tuned.count_flops(module, length))
    for length, count in counts.items()
  )
  rows = phase.batch_size * max(config.finetuning.num_choices, 1)
  saved *= rows * phase.steps / updates
  device = jax.devices()[0]
  seconds = _CPU_SECONDS + _CPU_LAYER * config.model.num_layers
  rate = _CPU_RATE
  if device.platform != 'cpu':
    chip = chips.find(device.device_kind)
    peak = chip.flops / chip.devices if chip else _UNKNOWN
    seconds, rate = _SECONDS, _SHARE * peak * jax.device_count()
  return saved / rate > seconds * (len(list_lengths(phase)) - 1)


def describe(config: config_dict.ConfigDict) -> str:
  """Returns a line on the lengths of a completed config's batches."""
  [phase] = task.list_phases(config)
  if 0 < config.finetuning.packed < 1:
    rows = round(config.finetuning.packed * phase.batch_size)
    return (
      f'the {phase.batch_size} rows of a batch are packed into {rows} of '
      f'{phase.seq_length} tokens'
    )
  if config.finetuning.by_length:
    lengths = ', '.join(map(str, list_lengths(phase)))
    return f'rows of similar length share batches of {lengths} tokens'
  return (
    f'all batches have {phase.seq_length} tokens: in {phase.steps:,} updates, '
    'shorter ones would save less time than they take to compile, or '
    'finetuning.by_length is off'
  )


def choose_length(phase: task.Phase, lengths: np.ndarray) -> int:
  """Returns the length of a batch whose rows have these tokens, int [B]."""
  allowed = list_lengths(phase)
  return allowed[int(np.searchsorted(allowed, lengths.max()))]


def make_seed(config: config_dict.ConfigDict) -> int:
  """Returns the seed of the order in which training rows are seen."""
  return int(hashing.mix(config.seed, _ORDER)[0] >> np.uint64(1))


class Order:
  """Which records the batches have, by the records' tokens, int [N].

  Records of a batch are of similar length; if `dealt`, all batches have similar
  numbers of tokens instead. The batches of the last window are remembered.
  """

  def __init__(self, seed: int, lengths: np.ndarray, dealt: bool = False):
    self._seed, self._lengths, self._dealt = seed, lengths, dealt
    self._window: tuple[tuple, np.ndarray] | None = None

  def find_batch(self, phase: task.Phase, step: int) -> tuple[np.ndarray, int]:
    """Returns (records of a step's batch, int64 [B]; its length)."""
    records = self.find_records(phase, step)
    if self._dealt:
      return records, phase.seq_length
    return records, choose_length(phase, self._lengths[records])

  def find_records(self, phase: task.Phase, step: int) -> np.ndarray:
    """Returns the records of a step's batch, int64 [B]."""
    first, batches = self._find_window(phase, step - phase.first)
    if self._window is None or self._window[0] != (phase, first):
      self._window = (phase, first), self._sort(phase, first, batches)
    return self._window[1][step - phase.first - first]

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
    lengths = self._lengths[records]
    if self._dealt:
      by_length = np.argsort(lengths, kind='stable')
      found = records[by_length].reshape(size, batches).T
    else:
      # Rows of a class need the same length of batch, and stay shuffled.
      classes = np.searchsorted(list_lengths(phase), lengths)
      by_length = np.argsort(classes, kind='stable')
      found = records[by_length].reshape(batches, size)
    keys = hashing.mix(self._seed, _BATCHES, first + np.arange(batches))
    return found[np.argsort(keys)]
