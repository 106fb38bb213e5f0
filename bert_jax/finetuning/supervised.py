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
  """The batches of a run, as functions of (phase, step). It can be pickled."""

  def __init__(
    self,
    config: config_dict.ConfigDict,
    data: task_data.Data,
    make: Callable[[Any, np.ndarray, int], task.Batch],
    count_tokens: Callable[[Any], np.ndarray],
    held_out: int | None = None,
  ):
    """Plans the batches.

    Args:
      config: the experiment; the order follows from its seed.
      data: its data.
      make: (split, numbers of rows [b], length) -> their batch, with
        `label_weights` [b, ...].
      count_tokens: (split) -> tokens of each row, int [N], for batches of rows
        of similar length, see `buckets`.
      held_out: number of dev rows to evaluate on; None is all.
    """
    self._seed = int(hashing.mix(config.seed, _ORDER)[0] >> np.uint64(1))
    self._train, self._dev = data.splits['train'], data.splits['dev']
    self._make = make
    self._ordered = self._dev_lengths = None
    if config.finetuning.by_length:
      lengths = count_tokens(self._train)
      self._ordered = buckets.Order(self._seed, lengths)
      self._dev_lengths = count_tokens(self._dev)
    self._held_out = self._dev.size if held_out is None else held_out

  def train_batch(
    self, phase: task.Phase, step: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of a step's global batch; None means all rows."""
    if rows is None:
      rows = np.arange(phase.batch_size)
    if self._ordered is not None and len(buckets.list_lengths(phase)) > 1:
      whole, length = self._ordered.find_batch(phase, step)
      return self._make(self._train, whole[rows], length)
    start = (step - phase.first) * phase.batch_size
    record, _ = order.find_records(self._seed, start + rows, self._train.size)
    return self._make(self._train, record, phase.seq_length)

  def eval_batches(self, phase: task.Phase) -> int:
    """Returns the number of held-out batches."""
    return -(-self._held_out // phase.eval_batch_size)

  def eval_batch(
    self, phase: task.Phase, i: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of held-out batch i; None means all rows."""
    n, length = phase.eval_batch_size, phase.seq_length
    row = i * n + (np.arange(n) if rows is None else rows)
    record = np.minimum(row, self._held_out - 1)
    if self._dev_lengths is not None:
      whole = self._dev_lengths[list(self.list_rows(phase, i))]
      length = buckets.choose_length(phase, whole)
    batch = self._make(self._dev, record, length)
    batch['label_weights'][row >= self._held_out] = 0
    return batch

  def list_rows(self, phase: task.Phase, i: int) -> range:
    """Returns the numbers of the dev rows of held-out batch i."""
    first = i * phase.eval_batch_size
    return range(first, min(first + phase.eval_batch_size, self._held_out))


def make_task(
  config: config_dict.ConfigDict,
  data: task_data.Data,
  batches: Batches,
  objective: Callable[[config_dict.ConfigDict], task.Objective],
  describe: Callable[[task.Batch], list[str]],
  collect: Callable[..., Any],
  score: Callable[[Any], dict[str, float]],
  columns: Sequence[str] = (),
) -> task.Task:
  """Returns a task on the batches of a run.

  Args:
    config: the experiment, completed.
    data: its data.
    batches: their batches.
    objective: see `task.Task`; as are describe and score.
    collect: (batches, kept, phase, i, predictions), see `task.Task`.
    columns: names of the columns that hold the texts.
  """
  return task.Task(
    objective=objective,
    train_batch=batches.train_batch,
    eval_batch=batches.eval_batch,
    eval_batches=batches.eval_batches,
    describe=describe,
    facts=task_data.list_facts(config, data, columns),
    start=starting.make_start(config, data.labels),
    collect=functools.partial(collect, batches),
    score=score,
  )
