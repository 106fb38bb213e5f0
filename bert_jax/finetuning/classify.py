"""The task of classifying, or rating, a text or a pair of texts."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.data import hashing, order
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import (
  completion,
  data_files,
  dataset,
  encode,
  metrics,
  starting,
)
from bert_jax.model import classifier, losses, parameters
from bert_jax.train import task, tuning
from bert_jax.workdir import claim, paths

_ORDER = 5  # tag of hashes


def make_objective(config: config_dict.ConfigDict) -> task.Objective:
  """Returns the part of the task that needs no data."""
  module = make_module(config)
  bert, outputs = module.config, module.outputs
  names = ('squared_error',) if outputs == 1 else ('cross_entropy', 'accuracy')
  return task.Objective(
    init=functools.partial(parameters.init, module),
    losses=names[:1],
    counts=lambda batch: dict.fromkeys(names, jnp.sum(batch['label_weights'])),
    compute=functools.partial(compute_sums, module),
    batch_shapes=functools.partial(batch_shapes, outputs),
    flops=lambda phase: (
      phase.batch_size * bert.flops_per_sequence(phase.seq_length, 0)
    ),
    expected_loss=None if outputs == 1 else math.log(outputs),
  )


def make_module(config: config_dict.ConfigDict) -> classifier.Classifier:
  """Returns the model of a config, computed as in training.

  Args:
    config: the experiment, from `tuning.resolve`.
  """
  bert = tuning.model_config(config)
  c = config.finetuning
  # Unknown where no data is read, as in preflight.
  return classifier.Classifier(bert, c.outputs or 2, c.head_dropout)


def batch_shapes(outputs: int, phase: task.Phase, rows: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  tokens = jax.ShapeDtypeStruct((rows, phase.seq_length), jnp.int32)  # [B, S]
  kind = jnp.float32 if outputs == 1 else jnp.int32
  return {
    **dict.fromkeys(('input_ids', 'input_mask', 'segment_ids'), tokens),
    'labels': jax.ShapeDtypeStruct((rows,), kind),
    'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
  }


def compute_sums(
  module: classifier.Classifier,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns ({metric: sum over a batch}, {'logits': [B, C]})."""
  logits = module.apply(
    {'params': params},
    batch,
    deterministic=key is None,
    rngs=None if key is None else {'dropout': key},
  )
  labels, weights = batch['labels'], batch['label_weights']
  if module.outputs == 1:
    off = jnp.sum(jnp.square(logits[:, 0] - labels) * weights)
    return {'squared_error': off}, {'logits': logits}
  loss, hits = losses.sum_tokens(logits, labels, weights)
  return {'cross_entropy': loss, 'accuracy': hits}, {'logits': logits}


class Batches:
  """The batches of a run, as functions of (phase, step). It can be pickled."""

  def __init__(self, config: config_dict.ConfigDict, data: dataset.Data):
    self._seed = int(hashing.mix(config.seed, _ORDER)[0] >> np.uint64(1))
    self._train, self._dev = data.splits['train'], data.splits['dev']
    self._pad = data.pad_id
    self._dev_size = min(self._dev.size, config.eval.sequences)

  def train_batch(
    self, phase: task.Phase, step: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of a step's global batch; None means all rows."""
    if rows is None:
      rows = np.arange(phase.batch_size)
    start = (step - phase.first) * phase.batch_size
    record, _ = order.find_records(self._seed, start + rows, self._train.size)
    return self._make(self._train, record, phase)

  def eval_batches(self, phase: task.Phase) -> int:
    return -(-self._dev_size // phase.eval_batch_size)

  def eval_batch(
    self, phase: task.Phase, i: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of held-out batch i; None means all rows."""
    n = phase.eval_batch_size
    row = i * n + (np.arange(n) if rows is None else rows)
    record = np.minimum(row, self._dev_size - 1)
    batch = self._make(self._dev, record, phase)
    batch['label_weights'][row >= self._dev_size] = 0
    return batch

  def collect(self, kept, phase: task.Phase, i: int, predictions):
    """Adds the logits of a held-out batch, [B, C], to those of earlier ones."""
    left = self._dev_size - i * phase.eval_batch_size
    return [*(kept or ()), predictions['logits'][:left]]

  def score(self, names, kept) -> dict[str, float]:
    """Returns {metric: value} of the held-out rows."""
    predicted = choose(np.concatenate(kept))
    return metrics.score(names, self._dev.labels[: self._dev_size], predicted)

  def _make(self, split, record, phase) -> task.Batch:
    batch = encode.make_batch(
      split.encoded, record, phase.seq_length, self._pad
    )
    return batch | {
      'labels': split.labels[record],
      'label_weights': np.ones(len(record), np.float32),
    }


def choose(logits: np.ndarray) -> np.ndarray:
  """Returns the likeliest classes, or the numbers, [N] of logits [N, C]."""
  return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(-1)


def list_metrics(config: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the names of a run's metrics; the first is to compare by."""
  known = data_files.find_glue(config.finetuning.glue)
  if known:
    return known.metrics
  if config.finetuning.outputs == 1:
    return 'pearson', 'spearman', 'mean_squared_error'
  return 'accuracy', 'macro_f1', 'matthews'


def list_columns(config: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the column of the text, and that of a second text if any."""
  known = data_files.find_glue(config.finetuning.glue) or config.data
  return tuple(name for name in (known.text, known.pair) if name)


def make_task(config: config_dict.ConfigDict, directory: str) -> task.Task:
  """Returns the task of classification.

  Args:
    config: the experiment, completed.
    directory: output of `dataset.write`.
  """
  data = dataset.read(directory)
  batches = Batches(config, data)
  recipe = {
    name: data.manifest['recipe'][name]
    for name in ('lowercase', 'strip_accents')
  }
  return task.Task(
    objective=make_objective,
    train_batch=batches.train_batch,
    eval_batch=batches.eval_batch,
    eval_batches=batches.eval_batches,
    describe=describe,
    facts={
      'data': {'recipe': recipe, 'splits': data.manifest['splits']},
      'labels': list(data.labels),
      'columns': list(list_columns(config)),
      'max_length': max(config.phases.seq_length),
      'vocab_sha256': data.manifest['sha256']['vocab.txt'],
      'data_sha256': data.manifest['sha256'],
    },
    start=starting.make_start(config, data.labels),
    collect=batches.collect,
    score=functools.partial(batches.score, list_metrics(config)),
  )


def prepare_data(config: config_dict.ConfigDict, workdir: str):
  """Encodes the files of a config, unless the run has begun.

  Raises:
    errors.UserError: as `dataset.write`.
  """
  if claim.has_begun(workdir):
    return
  directory = paths.prepared_data(config, workdir)
  dataset.write(config, directory, completion.read_tokenizer(config))


def open_data(config: config_dict.ConfigDict, workdir: str) -> str:
  """Prints what a run's data are; returns their directory."""
  directory = paths.prepared_data(config, workdir)
  for line in dataset.describe(manifest_lib.read(directory)):
    print(line, flush=True)
  return directory


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, rows = batch['input_mask'].sum(), len(batch['labels'])
  return [
    f'first batch: {rows} rows of {tokens / rows:.1f} tokens, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding'
  ]
