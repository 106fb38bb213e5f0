"""What the tasks of fine-tuning share: rows with labels, in seeded order."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import config_dict

from bert_jax.data import hashing, order
from bert_jax.finetuning import buckets, starting, task_data
from bert_jax.inference import fine_tuned
from bert_jax.train import task

_ORDER = 5  # tag of hashes


def make_objective(
  config: config_dict.ConfigDict,
  module: nn.Module,
  metrics: Sequence[str],
  compute: Callable[..., tuple[dict, Any]],
  batch_shapes: Callable[[task.Phase, int], dict],
  expected_loss: float | None,
  more_losses: Mapping[str, Callable[[dict], jax.Array]] | None = None,
) -> task.Objective:
  """Returns the part of a task that needs no data.

  Args:
    config: the experiment.
    module: the model, from `fine_tuned.make_module`.
    metrics: names of sums over `label_weights`; the first is the loss.
    compute: (module, parameters, batch, key) -> (sums, predictions), as in
      `task.Objective`.
    batch_shapes: as in `task.Objective`, with `label_weights`.
    expected_loss: loss of untrained parameters in nats; None if unknown.
    more_losses: {name: (batch) -> its count} of further losses.
  """
  more = dict(more_losses or {})

  def count_flops(phase):
    tokens = batch_shapes(phase, phase.batch_size)['input_mask'].shape
    each = fine_tuned.count_flops(module, phase.seq_length)
    return math.prod(tokens[:-1]) * each

  def count(batch):
    counts = dict.fromkeys(metrics, jnp.sum(batch['label_weights']))
    return counts | {name: found(batch) for name, found in more.items()}

  return task.Objective(
    init=fine_tuned.make_init(module),
    losses=(*metrics[:1], *more),
    counts=count,
    compute=functools.partial(compute, module),
    batch_shapes=batch_shapes,
    flops=count_flops,
    expected_loss=expected_loss,
    lengths=buckets.get_lengths(config),
  )


def apply(
  module: nn.Module, params: Any, batch: dict[str, jax.Array], key: Any
) -> jax.Array:
  """Returns a model's logits; key None turns dropout off."""
  return module.apply(
    {'params': params},
    batch,
    deterministic=key is None,
    rngs=None if key is None else {'dropout': key},
  )


class Batches:
  """The batches that a run learns from. It can be pickled.

  Args:
    config: the experiment; the order follows from its seed.
    split: its training rows.
    make: (split, numbers of rows [b], length) -> their batch, with
      `label_weights` [b, ...].
  """

  def __init__(
    self,
    config: config_dict.ConfigDict,
    split: Any,
    make: Callable[[Any, np.ndarray, int], task.Batch],
  ):
    self._seed = int(hashing.mix(config.seed, _ORDER)[0] >> np.uint64(1))
    self._split, self._make, self._ordered = split, make, None
    if config.finetuning.by_length:
      self._ordered = buckets.Order(self._seed, split.lengths)

  def train_batch(
    self, phase: task.Phase, step: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of a step's global batch; None means all rows."""
    if rows is None:
      rows = np.arange(phase.batch_size)
    if self._ordered is not None and len(buckets.list_lengths(phase)) > 1:
      whole, length = self._ordered.find_batch(phase, step)
      return self._make(self._split, whole[rows], length)
    start = (step - phase.first) * phase.batch_size
    record, _ = order.find_records(self._seed, start + rows, self._split.size)
    return self._make(self._split, record, phase.seq_length)


class Unseen:
  """The rows of a split that a model predicts: see `task.Task.others`.

  Args:
    config: the experiment. By length, rows are in ascending order.
    split: the rows.
    make: as in `Batches`.
    keep: (split, kept, rows, predictions) -> kept, see `predictions.fill`.
  """

  def __init__(
    self,
    config: config_dict.ConfigDict,
    split: Any,
    make: Callable[[Any, np.ndarray, int], task.Batch],
    keep: Callable[[Any, Any, np.ndarray, Any], Any],
  ):
    self._split, self._make, self._keep = split, make, keep
    self._order, self._lengths = np.arange(split.size), None
    if config.finetuning.by_length:
      self._lengths = split.lengths
      self._order = np.argsort(self._lengths, kind='stable')

  def eval_batches(self, phase: task.Phase) -> int:
    """Returns the number of batches."""
    return -(-self._split.size // phase.eval_batch_size)

  def eval_batch(
    self, phase: task.Phase, i: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of batch i; None means all rows."""
    own, length = self.list_rows(phase, i), phase.seq_length
    n = len(own)
    rows = np.arange(phase.eval_batch_size) if rows is None else rows
    if self._lengths is not None:
      length = buckets.choose_length(phase, self._lengths[own])
    batch = self._make(self._split, own[np.minimum(rows, n - 1)], length)
    batch['label_weights'][rows >= n] = 0
    return batch

  def list_rows(self, phase: task.Phase, i: int) -> np.ndarray:
    """Returns the numbers of the rows of batch i."""
    n = phase.eval_batch_size
    return self._order[i * n : (i + 1) * n]

  def collect(self, kept: Any, phase: task.Phase, i: int, predictions: Any):
    """Keeps what is needed of the predictions of batch i."""
    return self._keep(self._split, kept, self.list_rows(phase, i), predictions)


def make_task(
  form: task_data.Format,
  part: Any,
  config: config_dict.ConfigDict,
  directory: str,
) -> task.Task:
  """Returns a task of fine-tuning.

  Args:
    form: how its data are kept.
    part: the module of what is the task's own, such as `classify`: its
      `make_objective`; `make_batch`, (data without splits, split, rows, length)
      -> batch, see `Batches`; `keep`, see `Unseen`; `score`, (config, data, what
      was kept of dev) -> {metric: value}; `describe`, see `task.Task`; and
      `list_columns`, (config) -> names of the columns that hold the texts.
    config: the experiment, completed.
    directory: the prepared data, see `task_data`.
  """
  data = task_data.read(form, directory)
  bare = data._replace(splits={}, manifest={})
  make = functools.partial(part.make_batch, bare)
  unseen = {
    name: Unseen(config, split, make, part.keep)
    for name, split in data.splits.items()
    if name != 'train'
  }
  dev = unseen.pop('dev')
  return task.Task(
    objective=part.make_objective,
    train_batch=Batches(config, data.splits['train'], make).train_batch,
    eval_batch=dev.eval_batch,
    eval_batches=dev.eval_batches,
    describe=part.describe,
    facts=task_data.list_facts(config, data, part.list_columns(config)),
    start=starting.make_start(config, data.labels),
    collect=dev.collect,
    score=functools.partial(part.score, config, data),
    keep_best=config.finetuning.select == 'best',
    others={
      name: task.Rows(x.eval_batch, x.eval_batches, collect=x.collect)
      for name, x in unseen.items()
    },
  )
