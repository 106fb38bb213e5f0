"""The task of choosing one of several texts (arXiv 1810.04805, section 4.4).

The model gives each choice a number: the product of one vector with C, the
final vector of [CLS]. The choices' softmax is over these.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import (
  encode,
  metrics,
  predictions,
  supervised,
  task_data,
)
from bert_jax.finetuning.choices import choice_data
from bert_jax.inference import fine_tuned
from bert_jax.model import classifier, losses
from bert_jax.parallel import row_keys
from bert_jax.train import task, tuning

METRICS = ('accuracy',)
_INPUTS = 'input_ids', 'input_mask', 'segment_ids'


def make_objective(config: config_dict.ConfigDict) -> task.Objective:
  """Returns the part of the task that needs no data."""
  # Unknown where no data is read, as in preflight; SWAG has four.
  choices = config.finetuning.num_choices or 4
  return supervised.make_objective(
    config,
    fine_tuned.make_module(config, tuning.model_config(config)),
    ('cross_entropy', 'accuracy'),
    compute_sums,
    functools.partial(batch_shapes, choices),
    math.log(choices),
  )


def batch_shapes(choices: int, phase: task.Phase, rows: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  shape = rows, choices, phase.seq_length  # [B, N, S]
  return {
    **dict.fromkeys(_INPUTS, jax.ShapeDtypeStruct(shape, jnp.int32)),
    'labels': jax.ShapeDtypeStruct((rows,), jnp.int32),
    'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
  }


def compute_sums(
  module: classifier.Classifier,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns ({metric: sum over a batch}, {'logits': [B, N]})."""
  rows, choices, length = batch['input_ids'].shape
  pairs = {name: batch[name].reshape(-1, length) for name in _INPUTS}
  if key is not None:
    key = row_keys.for_parts(key, choices)
  logits = supervised.apply(module, params, pairs, key)  # [B N, 1]
  logits = logits.reshape(rows, choices)
  loss, hits = losses.sum_tokens(
    logits, batch['labels'], batch['label_weights']
  )
  return {'cross_entropy': loss, 'accuracy': hits}, {'logits': logits}


def make_batch(
  data: task_data.Data,
  split: choice_data.Split,
  rows: np.ndarray,
  length: int,
) -> task.Batch:
  """Returns the batch of some rows of a split; unknown labels are 0."""
  labels = np.zeros(len(rows), np.int32)
  if split.labels is not None:
    labels = split.labels[rows]
  pairs = rows[:, None] * split.choices + np.arange(split.choices)  # [B, N]
  batch = encode.make_batch(split.encoded, pairs.ravel(), length, data.pad_id)
  shape = *pairs.shape, length
  return {name: x.reshape(shape) for name, x in batch.items()} | {
    'labels': labels,
    'label_weights': np.ones(len(rows), np.float32),
  }


keep = predictions.keep_likeliest


def score(config, data: task_data.Data, kept: dict) -> dict[str, float]:
  """Returns {metric: value} of dev."""
  del config
  return metrics.score(METRICS, data.splits['dev'].labels, kept['chosen'])


def list_columns(config: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the columns of the text, of the choices' beginning and of them."""
  return config.data.text, config.data.pair, config.data.choices


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, (rows, choices, _) = (
    batch['input_mask'].sum(),
    batch['input_ids'].shape,
  )
  return [
    f'first batch: {rows} rows of {choices} choices of '
    f'{tokens / rows / choices:.1f} tokens, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding'
  ]
