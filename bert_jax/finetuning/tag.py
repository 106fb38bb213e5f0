"""The task of tagging words, such as with named entities."""

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
  encode,
  entities,
  starting,
  tag_data,
  windows,
)
from bert_jax.model import losses, parameters, tagger
from bert_jax.train import task, tuning
from bert_jax.workdir import claim, paths

_ORDER = 6  # tag of hashes
_METRICS = 'cross_entropy', 'accuracy'


def make_objective(config: config_dict.ConfigDict) -> task.Objective:
  """Returns the part of the task that needs no data."""
  module = make_module(config)
  return task.Objective(
    init=functools.partial(parameters.init, module),
    losses=_METRICS[:1],
    counts=lambda batch: dict.fromkeys(
      _METRICS, jnp.sum(batch['label_weights'])
    ),
    compute=functools.partial(compute_sums, module),
    batch_shapes=batch_shapes,
    flops=lambda phase: (
      phase.batch_size * module.config.flops_per_sequence(phase.seq_length, 0)
    ),
    expected_loss=math.log(module.outputs),
  )


def make_module(config: config_dict.ConfigDict) -> tagger.Tagger:
  """Returns the model of a config, computed as in training.

  Args:
    config: the experiment, from `tuning.resolve`.
  """
  bert = tuning.model_config(config)
  c = config.finetuning
  # Unknown where no data is read, as in preflight.
  return tagger.Tagger(bert, c.outputs or 9, c.head_dropout)


def batch_shapes(phase: task.Phase, rows: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  shape = rows, phase.seq_length  # [B, S]
  names = 'input_ids', 'input_mask', 'segment_ids', 'labels'
  return {
    **dict.fromkeys(names, jax.ShapeDtypeStruct(shape, jnp.int32)),
    'label_weights': jax.ShapeDtypeStruct(shape, jnp.float32),
  }


def compute_sums(
  module: tagger.Tagger,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns ({metric: sum over a batch}, {'tags': int32 [B, S]})."""
  logits = module.apply(
    {'params': params},
    batch,
    deterministic=key is None,
    rngs=None if key is None else {'dropout': key},
  )
  loss, hits = losses.sum_tokens(
    logits, batch['labels'], batch['label_weights']
  )
  tags = jnp.argmax(logits, -1).astype(jnp.int32)
  return {'cross_entropy': loss, 'accuracy': hits}, {'tags': tags}


class Batches:
  """The batches of a run, as functions of (phase, step). It can be pickled."""

  def __init__(self, config: config_dict.ConfigDict, data: tag_data.Data):
    self._seed = int(hashing.mix(config.seed, _ORDER)[0] >> np.uint64(1))
    self._train, self._dev = data.splits['train'], data.splits['dev']
    self._labels, self._pad = data.labels, data.pad_id

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
    return -(-self._dev.size // phase.eval_batch_size)

  def eval_batch(
    self, phase: task.Phase, i: int, rows: np.ndarray | None = None
  ) -> task.Batch:
    """Returns the given rows of held-out batch i; None means all rows."""
    n = phase.eval_batch_size
    row = i * n + (np.arange(n) if rows is None else rows)
    batch = self._make(self._dev, np.minimum(row, self._dev.size - 1), phase)
    batch['label_weights'][row >= self._dev.size] = 0
    return batch

  def collect(self, kept, phase: task.Phase, i: int, predictions):
    """Adds the tags of a held-out batch's words, int32, to earlier ones."""
    first = i * phase.eval_batch_size
    rows = predictions['tags'][: self._dev.size - first]
    made = self._dev.windows
    return [*(kept or ()), windows.take_words(made, rows, first)]

  def score(self, kept) -> dict[str, float]:
    """Returns {metric: value} of the held-out words."""
    counts = count(self._dev, self._labels, np.concatenate(kept))
    return entities.score(sum(counts.values()))

  def _make(self, split, record, phase) -> task.Batch:
    made = split.windows
    batch = encode.make_batch(made.encoded, record, phase.seq_length, self._pad)
    labels = np.zeros((len(record), phase.seq_length), np.int32)
    weights = np.zeros(labels.shape, np.float32)
    for k, row in enumerate(record):
      words = windows.find_words(made, row)
      labels[k, made.positions[words]] = split.tags[words]
      weights[k, made.positions[words]] = 1
    return batch | {'labels': labels, 'label_weights': weights}


def count(split: tag_data.Split, labels, tags: np.ndarray):
  """Returns `entities.count` of a split's words, whose predictions are tags."""
  truth, predicted = (
    [[labels[i] for i in x] for x in np.split(x, split.sentence_ends[:-1])]
    for x in (split.tags, tags)
  )
  return entities.count(truth, predicted) or {
    '': np.zeros((len(split.sentence_ends), 3), int)
  }


def make_task(config: config_dict.ConfigDict, directory: str) -> task.Task:
  """Returns the task of tagging.

  Args:
    config: the experiment, completed.
    directory: output of `tag_data.write`.
  """
  data = tag_data.read(directory)
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
      'columns': [],
      'max_length': max(config.phases.seq_length),
      'vocab_sha256': data.manifest['sha256']['vocab.txt'],
      'data_sha256': data.manifest['sha256'],
    },
    start=starting.make_start(config, data.labels),
    collect=batches.collect,
    score=batches.score,
  )


def prepare_data(config: config_dict.ConfigDict, workdir: str):
  """Encodes the files of a config, unless the run has begun.

  Raises:
    errors.UserError: as `tag_data.write`.
  """
  if claim.has_begun(workdir):
    return
  directory = paths.prepared_data(config, workdir)
  tag_data.write(config, directory, completion.read_tokenizer(config))


def open_data(config: config_dict.ConfigDict, workdir: str) -> str:
  """Prints what a run's data are; returns their directory."""
  directory = paths.prepared_data(config, workdir)
  for line in tag_data.describe(manifest_lib.read(directory)):
    print(line, flush=True)
  return directory


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, words = batch['input_mask'].sum(), batch['label_weights'].sum()
  return [
    f'first batch: {len(batch["labels"])} rows, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{words / tokens:.1%} of the tokens are first pieces to tag'
  ]
