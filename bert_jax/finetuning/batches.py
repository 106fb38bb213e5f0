"""The batches of a run: rows in the order of a seed, and rows to predict."""

import functools
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax.data import hashing
from bert_jax.finetuning import (
  buckets,
  encode,
  packing,
  starting,
  supervised,
  task_data,
)
from bert_jax.inference import fine_tuned
from bert_jax.train import task


class Batches:
  """The batches that a run learns from. It can be pickled."""

  def __init__(
    self, config: config_dict.ConfigDict, split: encode.Rows, pad_id: int
  ):
    f = config.finetuning
    self._seed, self._share = buckets.make_seed(config), f.packed
    self._split, self._pad_id, self._ordered = split, pad_id, None
    dealt = packing.count_rows(f.packed, *config.phases.batch_size) > 0
    if f.by_length or dealt:
      self._ordered = buckets.Order(self._seed, split.lengths, dealt)

  def train_batch(
    self, phase: task.Phase, step: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of a step's global batch; None means all rows."""
    rows = np.arange(phase.batch_size) if rows is None else rows
    if self._ordered is not None:
      whole, length = self._ordered.find_batch(phase, step)
      records = whole[rows]
    else:
      numbers = (step - phase.first) * phase.batch_size + rows
      records, _ = hashing.find_records(self._seed, numbers, self._split.size)
      length = phase.seq_length
    batch = self._split.make_batch(records, length, self._pad_id)
    return packing.pack(batch, packing.count_rows(self._share, len(rows)))


class Unseen:
  """The rows of a split that a model predicts: see `task.Task.others`.

  If batches are by length, rows are sorted by ascending length.
  """

  def __init__(
    self, config: config_dict.ConfigDict, split: encode.Rows, pad_id: int
  ):
    f, self._split, self._pad_id = config.finetuning, split, pad_id
    self._share, self._by_length = f.packed, f.by_length
    self._lengths = lengths = split.lengths
    [phase] = task.list_phases(config)
    size = phase.eval_batch_size
    if packing.count_rows(f.packed, size):
      self._batches = packing.deal(lengths, size)
    else:
      rows = np.arange(split.size)
      order = np.argsort(lengths, kind='stable') if f.by_length else rows
      self._batches = np.split(order, rows[size::size])

  def eval_batches(self, phase: task.Phase) -> int:
    return len(self._batches)

  def eval_batch(
    self, phase: task.Phase, i: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of batch i; None means all rows."""
    own, length = self._batches[i], phase.seq_length
    n = len(own)
    rows = np.arange(phase.eval_batch_size) if rows is None else rows
    if self._by_length:
      length = buckets.choose_length(phase, self._lengths[own])
    chosen = own[np.minimum(rows, n - 1)]
    batch = self._split.make_batch(chosen, length, self._pad_id)
    batch['label_weights'][rows >= n] = 0
    count = packing.count_rows(self._share, len(rows))
    if count:  # rows that only fill up the batch are not packed
      batch['input_mask'][rows >= n] = 0
    return packing.pack(batch, count)

  def collect(self, kept: Any, phase: task.Phase, i: int, predictions: Any):
    """Keeps what is needed of the predictions for batch i."""
    return self._split.keep(kept, self._batches[i], predictions)


def make_task(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  data: supervised.Data,
) -> task.Task:
  """Returns a task of fine-tuning, as the training loop takes it."""
  unseen = {
    name: Unseen(config, split, data.pad_id)
    for name, split in data.splits.items()
    if name != 'train'
  }
  dev = unseen.pop('dev')
  train = Batches(config, data.splits['train'], data.pad_id)

  bias = None
  if config.finetuning.head_bias == 'labels':
    bias = this.find_bias(data.splits['train'], len(data.labels))

  def score(kept):
    names = this.list_metrics(data.labels, config.finetuning.glue)
    split, settings = data.splits['dev'], fine_tuned.get_spans(config)
    found, _ = this.decide(split, kept, settings, tune=True)
    return this.measure(names, data.labels, split, found)

  return task.Task(
    objective=functools.partial(supervised.make_objective, this),
    train_batch=train.train_batch,
    eval_batch=dev.eval_batch,
    eval_batches=dev.eval_batches,
    describe=this.describe_batch,
    facts=task_data.list_facts(config, data, this.list_columns(config)),
    start=starting.make_start(config, data.labels, bias),
    collect=dev.collect,
    score=score,
    keep_best=config.finetuning.select == 'best',
    others={
      name: task.Rows(x.eval_batch, x.eval_batches, collect=x.collect)
      for name, x in unseen.items()
    },
  )
