"""The task of tagging words, such as with named entities."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import encode, supervised, task_data
from bert_jax.finetuning.tags import entities, tag_data, tag_windows
from bert_jax.inference import fine_tuned
from bert_jax.model import losses
from bert_jax.train import task, tuning


def make_objective(config: config_dict.ConfigDict) -> task.Objective:
  """Returns the part of the task that needs no data."""
  module = fine_tuned.make_module(config, tuning.model_config(config))
  return supervised.make_objective(
    config,
    module,
    ('cross_entropy', 'accuracy'),
    compute_sums,
    functools.partial(batch_shapes, module),
    math.log(module.outputs),
  )


def batch_shapes(module: nn.Module, phase: task.Phase, rows: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  shape = rows, phase.seq_length  # [B, S]
  return fine_tuned.list_inputs(module, *shape) | {
    'labels': jax.ShapeDtypeStruct(shape, jnp.int32),
    'label_weights': jax.ShapeDtypeStruct(shape, jnp.float32),
  }


def compute_sums(
  module: nn.Module,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns ({metric: sum over a batch}, {'tags': int32 [B, S]})."""
  logits = supervised.apply(module, params, batch, key)
  loss, hits = losses.sum_tokens(
    logits, batch['labels'], batch['label_weights']
  )
  tags = jnp.argmax(logits, -1).astype(jnp.int32)
  return {'cross_entropy': loss, 'accuracy': hits}, {'tags': tags}


def make_batches(
  config: config_dict.ConfigDict, data: task_data.Data
) -> supervised.Batches:
  """Returns the batches of a run."""
  make = functools.partial(make_batch, data.pad_id)
  return supervised.Batches(config, data, make, count_tokens)


def count_tokens(split: tag_data.Split) -> np.ndarray:
  """Returns the tokens of each row, int [N]."""
  return split.windows.encoded.lengths


def make_batch(
  pad_id: int, split: tag_data.Split, rows: np.ndarray, length: int
) -> task.Batch:
  """Returns the batch of some rows of a split."""
  made = split.windows
  labels = np.zeros((len(rows), length), np.int32)
  weights = np.zeros(labels.shape, np.float32)
  for k, row in enumerate(rows):
    words = tag_windows.find_words(made, row)
    labels[k, made.positions[words]] = split.tags[words]
    weights[k, made.positions[words]] = 1
  return encode.make_batch(made.encoded, rows, length, pad_id) | {
    'labels': labels,
    'label_weights': weights,
  }


def collect(
  dev: tag_data.Split,
  batches: supervised.Batches,
  kept,
  phase,
  i: int,
  predictions,
):
  """Adds the tags of a held-out batch's words, int32, to earlier ones."""
  rows = batches.list_rows(phase, i)
  tags = predictions['tags'][: len(rows)]
  return [*(kept or ()), tag_windows.take_words(dev.windows, tags, rows.start)]


def score(dev: tag_data.Split, labels, kept) -> dict[str, float]:
  """Returns {metric: value} of the held-out words."""
  counts = count(dev, labels, np.concatenate(kept))
  return entities.score(sum(counts.values()))


def count(split: tag_data.Split, labels, tags: np.ndarray):
  """Returns `entities.count` of a split's words, whose predictions are tags."""
  truth, predicted = (
    [[labels[i] for i in x] for x in np.split(x, split.sentence_ends[:-1])]
    for x in (split.tags, tags)
  )
  return entities.count(truth, predicted) or {
    '': np.zeros((len(split.sentence_ends), 3), int)
  }


def list_columns(config: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the number of the words' column; () is the first one."""
  return (config.data.text,) if config.data.text else ()


def make_task(config: config_dict.ConfigDict, directory: str) -> task.Task:
  """Returns the task of tagging.

  Args:
    config: the experiment, completed.
    directory: the prepared data, see `task_data`.
  """
  data = task_data.read(tag_data.FORMAT, directory)
  dev = data.splits['dev']
  return supervised.make_task(
    config,
    data,
    make_batches(config, data),
    make_objective,
    describe,
    functools.partial(collect, dev),
    functools.partial(score, dev, data.labels),
    list_columns(config),
  )


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, words = batch['input_mask'].sum(), batch['label_weights'].sum()
  return [
    f'first batch: {len(batch["labels"])} rows, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{words / tokens:.1%} of the tokens are first pieces to tag'
  ]
