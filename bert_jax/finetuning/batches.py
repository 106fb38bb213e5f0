"""The batches of a run: rows in the order of a seed, and rows to predict."""

import functools

import numpy as np
from ml_collections import config_dict

from bert_jax.data import hashing
from bert_jax.finetuning import buckets, encode, starting, supervised, task_data
from bert_jax.inference import fine_tuned
from bert_jax.train import task


class Batches:
  """The batches that a run learns from. It can be pickled."""

  def __init__(
    self, config: config_dict.ConfigDict, split: encode.Rows, pad_id: int
  ):
    self._seed = buckets.make_seed(config)
    self._split, self._pad_id, self._ordered = split, pad_id, None
    if config.finetuning.by_length:
      self._ordered = buckets.Order(self._seed, split.lengths)

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
    return self._split.make_batch(records, length, self._pad_id)


def make_rows(
  config: config_dict.ConfigDict, split: encode.Rows, pad_id: int
) -> task.Rows:
  """Returns the rows of a split that a model predicts.

  If batches are by length, rows are sorted by ascending length.
  """
  by_length, lengths = config.finetuning.by_length, split.lengths
  [phase] = task.list_phases(config)
  size, order = phase.eval_batch_size, np.arange(split.size)
  if by_length:
    order = np.argsort(lengths, kind='stable')
  batches = np.split(order, range(size, split.size, size))

  def eval_batch(phase, i, rows=None):
    own, length = batches[i], phase.seq_length
    rows = np.arange(size) if rows is None else rows
    if by_length:
      length = buckets.choose_length(phase, lengths[own])
    chosen = own[np.minimum(rows, len(own) - 1)]
    batch = split.make_batch(chosen, length, pad_id)
    batch['label_weights'][rows >= len(own)] = 0
    return batch

  return task.Rows(
    eval_batch,
    eval_batches=lambda phase: len(batches),
    collect=lambda kept, phase, i, outputs: split.keep(
      kept, batches[i], outputs
    ),
  )


def make_task(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  data: supervised.Data,
) -> task.Task:
  """Returns a task of fine-tuning, as the training loop takes it."""
  others = {
    name: make_rows(config, split, data.tokenizer.pad_id)
    for name, split in data.splits.items()
    if name != 'train'
  }
  dev = others.pop('dev')
  train = Batches(config, data.splits['train'], data.tokenizer.pad_id)

  bias = None
  if config.finetuning.head_bias == 'labels':
    bias = this.find_bias(data.splits['train'], len(data.labels))

  def score(kept):
    names = this.list_metrics(data.labels, config.finetuning)
    split, settings = data.splits['dev'], fine_tuned.get_settings(config)
    predicted, _ = this.decide(split, kept, settings, tune=True)
    return this.measure(names, data.labels, split, predicted)

  return task.Task(
    objective=functools.partial(supervised.make_objective, this),
    train_batch=train.train_batch,
    eval_batch=dev.eval_batch,
    eval_batches=dev.eval_batches,
    describe=lambda batch: [],
    facts=task_data.list_facts(config, data, this.list_columns(config)),
    start=starting.make_start(config, data.labels, bias),
    collect=dev.collect,
    score=score,
    keep_best=config.finetuning.select == 'best',
    others=others,
  )
