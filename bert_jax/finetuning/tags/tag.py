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


def make_batch(
  data: task_data.Data, split: tag_data.Split, rows: np.ndarray, length: int
) -> task.Batch:
  """Returns the batch of some rows of a split; unknown tags are 0."""
  made = split.windows
  labels = np.zeros((len(rows), length), np.int32)
  weights = np.zeros(labels.shape, np.float32)
  for k, row in enumerate(rows):
    words = tag_windows.find_words(made, row)
    if split.tags is not None:
      labels[k, made.positions[words]] = split.tags[words]
    weights[k, made.positions[words]] = 1
  return encode.make_batch(made.encoded, rows, length, data.pad_id) | {
    'labels': labels,
    'label_weights': weights,
  }


def keep(split: tag_data.Split, kept, rows: np.ndarray, predictions: dict):
  """Keeps the tags of the words of rows, in an array of all words, int32 [W]."""
  made = split.windows
  kept = np.zeros(len(split.words), np.int32) if kept is None else kept
  for row, tags in zip(rows, predictions['tags'][: len(rows)], strict=True):
    words = tag_windows.find_words(made, row)
    kept[words] = tags[made.positions[words]]
  return kept


def score(config, data: task_data.Data, tags: np.ndarray) -> dict[str, float]:
  """Returns {metric: value} of dev."""
  del config
  counts = count(data.splits['dev'], data.labels, tags)
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


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, words = batch['input_mask'].sum(), batch['label_weights'].sum()
  return [
    f'first batch: {len(batch["labels"])} rows, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{words / tokens:.1%} of the tokens are first pieces to tag'
  ]
