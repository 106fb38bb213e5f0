"""The task of classifying, or rating, a text or a pair of texts."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import (
  encode,
  gpt_form,
  metrics,
  predictions,
  supervised,
  task_data,
)
from bert_jax.finetuning.classes import class_data
from bert_jax.finetuning.readers import data_files
from bert_jax.inference import fine_tuned
from bert_jax.model import gpt_classifier, losses
from bert_jax.train import task, tuning


def make_objective(config: config_dict.ConfigDict) -> task.Objective:
  """Returns the part of the task that needs no data."""
  module = fine_tuned.make_module(config, tuning.model_config(config))
  n = module.outputs
  gpt = isinstance(module, gpt_classifier.GptClassifier)
  return supervised.make_objective(
    config,
    module,
    ('squared_error',) if n == 1 else ('cross_entropy', 'accuracy'),
    compute_sums,
    functools.partial(batch_shapes, module),
    None if n == 1 or gpt else math.log(n),
    {gpt_form.LOSS: gpt_form.count_tokens} if gpt else None,
  )


def batch_shapes(module: nn.Module, phase: task.Phase, rows: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  kind = jnp.float32 if module.outputs == 1 else jnp.int32
  return fine_tuned.list_inputs(module, rows, phase.seq_length) | {
    'labels': jax.ShapeDtypeStruct((rows,), kind),
    'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
  }


def compute_sums(
  module: nn.Module,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns ({metric: sum over a batch}, {'logits': [B, C]})."""
  found = {}
  if isinstance(module, gpt_classifier.GptClassifier):
    logits, found[gpt_form.LOSS] = gpt_form.compute(module, params, batch, key)
  else:
    logits = supervised.apply(module, params, batch, key)
  labels, weights = batch['labels'], batch['label_weights']
  if module.outputs == 1:
    off = jnp.sum(jnp.square(logits[:, 0] - labels) * weights)
    return found | {'squared_error': off}, {'logits': logits}
  loss, hits = losses.sum_tokens(logits, labels, weights)
  found |= {'cross_entropy': loss, 'accuracy': hits}
  return found, {'logits': logits}


def make_batch(
  data: task_data.Data,
  split: class_data.Split,
  rows: np.ndarray,
  length: int,
) -> task.Batch:
  """Returns the batch of some rows of a split; unknown labels are 0."""
  labels = np.zeros(len(rows), np.int32 if data.labels else np.float32)
  if split.labels is not None:
    labels = split.labels[rows]
  return encode.make_batch(split.encoded, rows, length, data.pad_id) | {
    'labels': labels,
    'label_weights': np.ones(len(rows), np.float32),
  }


keep = predictions.keep_likeliest


def score(config, data: task_data.Data, kept: dict) -> dict[str, float]:
  """Returns {metric: value} of dev."""
  truth = data.splits['dev'].labels
  return metrics.score(list_metrics(config), truth, kept['chosen'])


def list_metrics(config: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the names of a run's metrics; the first is to compare by."""
  known = data_files.find_glue(config.finetuning.glue)
  if known:
    return known.metrics
  return choose_metrics(config.finetuning.outputs > 1)


def choose_metrics(classes: Any) -> tuple[str, ...]:
  """Returns the names of the metrics of classes, or else of numbers."""
  if classes:
    return 'accuracy', 'macro_f1', 'matthews'
  return 'pearson', 'spearman', 'mean_squared_error'


def list_columns(config: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the column of the text, and that of a second text if any."""
  known = data_files.find_glue(config.finetuning.glue) or config.data
  return tuple(name for name in (known.text, known.pair) if name)


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, rows = batch['input_mask'].sum(), len(batch['labels'])
  return [
    f'first batch: {rows} rows of {tokens / rows:.1f} tokens, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding'
  ]
