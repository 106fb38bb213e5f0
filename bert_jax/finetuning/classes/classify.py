"""The task of classifying, or rating, a text or a pair of texts."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import encode, gpt_form, metrics, supervised, task_data
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


def make_batches(
  config: config_dict.ConfigDict, data: task_data.Data
) -> supervised.Batches:
  """Returns the batches of a run."""
  return supervised.Batches(
    config,
    data,
    functools.partial(make_batch, data.pad_id),
    count_tokens,
    min(data.splits['dev'].size, config.eval.sequences),
  )


def count_tokens(split: class_data.Split) -> np.ndarray:
  """Returns the tokens of each row, int [N]."""
  return split.encoded.lengths


def make_batch(
  pad_id: int, split: class_data.Split, rows: np.ndarray, length: int
) -> task.Batch:
  """Returns the batch of some rows of a split."""
  return encode.make_batch(split.encoded, rows, length, pad_id) | {
    'labels': split.labels[rows],
    'label_weights': np.ones(len(rows), np.float32),
  }


def collect(batches: supervised.Batches, kept, phase, i: int, predictions):
  """Adds what `choose` returns for a held-out batch to that of earlier ones."""
  rows = batches.list_rows(phase, i)
  return [*(kept or ()), choose(predictions['logits'][: len(rows)])]


def score(names, truth: np.ndarray, kept) -> dict[str, float]:
  """Returns {metric: value} of the held-out rows, the first ones of truth."""
  predicted = np.concatenate(kept)
  return metrics.score(names, truth[: len(predicted)], predicted)


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
    directory: the prepared data, see `task_data`.
  """
  data = task_data.read(class_data.FORMAT, directory)
  return supervised.make_task(
    config,
    data,
    make_batches(config, data),
    make_objective,
    describe,
    collect,
    functools.partial(score, list_metrics(config), data.splits['dev'].labels),
    list_columns(config),
  )


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, rows = batch['input_mask'].sum(), len(batch['labels'])
  return [
    f'first batch: {rows} rows of {tokens / rows:.1f} tokens, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding'
  ]
