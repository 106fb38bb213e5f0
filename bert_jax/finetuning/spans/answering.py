"""The task of answering questions with a part of a passage."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from bert_jax.finetuning import encode, predictions, supervised, task_data
from bert_jax.finetuning.spans import span_answers, span_data
from bert_jax.inference import fine_tuned
from bert_jax.model import losses
from bert_jax.train import task, tuning

_OUTPUTS = len(span_data.LABELS)


def make_objective(config: config_dict.ConfigDict) -> task.Objective:
  """Returns the part of the task that needs no data."""
  module = fine_tuned.make_module(config, tuning.model_config(config))
  return supervised.make_objective(
    config,
    module,
    ('cross_entropy', 'accuracy'),
    functools.partial(compute_sums, config.finetuning.max_answer_length),
    functools.partial(batch_shapes, module),
    None,  # that of guessing depends on how long the windows are
  )


def batch_shapes(module: nn.Module, phase: task.Phase, rows: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a batch of `rows` rows."""
  pair = jax.ShapeDtypeStruct((rows, 2), jnp.int32)
  return fine_tuned.list_inputs(module, rows, phase.seq_length) | {
    'labels': pair,
    'starts': pair,
    'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
  }


def compute_sums(
  max_answer_length: int,
  module: nn.Module,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns ({metric: sum over a batch}, `rank` of its logits).

  The loss of a row is the mean of the cross entropies of the first and of the
  last token. A row counts as a hit if both are right. In training, when dropout
  is on, nothing is ranked.
  """
  logits = supervised.apply(module, params, batch, key)  # [B, S, 2]
  ranked = {} if key is not None else rank(logits, batch, max_answer_length)
  # Padding is no answer, so that it changes no loss. In Google's code and in
  # transformers it competes with the tokens.
  real = batch['input_mask'][..., None]
  logits = jnp.where(real == 1, logits, jnp.finfo(jnp.float32).min)
  logits = jnp.swapaxes(logits, 1, 2)  # [B, 2, S]
  weights = jnp.broadcast_to(
    batch['label_weights'][:, None], batch['labels'].shape
  )
  loss, _ = losses.sum_tokens(logits, batch['labels'], weights)
  right = jnp.all(jnp.argmax(logits, -1) == batch['labels'], -1)
  hits = jnp.sum(right * batch['label_weights'])
  return {'cross_entropy': loss / _OUTPUTS, 'accuracy': hits}, ranked


def rank(
  logits: jax.Array, batch: dict[str, jax.Array], max_answer_length: int
) -> dict[str, jax.Array]:
  """Finds the likeliest answers in rows: that of each is all that is kept.

  Google's code takes the 20 best first and the 20 best last tokens of a row,
  anywhere, and leaves out what is no answer. Here every possible answer is
  compared, so none is missed.

  Args:
    logits: of the first and the last token, float32 [B, S, 2].
    batch: the rows: `input_mask` and `segment_ids`, [B, S], and `starts`, [B,
      2], see `span_windows.Windows`.
    max_answer_length: tokens of an answer, at most.

  Returns:
    `firsts` and `lasts`: their tokens, int32 [B, N]; `scores`: logits of both,
    float32 [B, N, 2], from the highest sum to the lowest, -inf if a row has
    fewer answers; `nulls`: those of [CLS], [B, 2]. N is 20 or fewer.
  """
  length = logits.shape[1]
  widths = min(max_answer_length, length)
  token = jnp.arange(length)[None]
  low, high = batch['starts'][:, :1], batch['starts'][:, 1:]
  begins = (token >= low) & (token < high)  # [B, S]
  # The last token of segment 1 is [SEP].
  real = batch['input_mask'] * batch['segment_ids']
  ends = real * jnp.pad(real[:, 1:], ((0, 0), (0, 1))) == 1
  first = jnp.where(begins, logits[..., 0], -jnp.inf)
  last = jnp.where(ends, logits[..., 1], -jnp.inf)
  last = jnp.pad(last, ((0, 0), (0, widths - 1)), constant_values=-jnp.inf)
  sums = jnp.stack(
    [first + last[:, k : k + length] for k in range(widths)], -1
  )  # [B, S, widths]
  flat = sums.reshape(len(sums), -1)
  best, found = jax.lax.top_k(
    flat, min(span_answers.MOST, flat.shape[1])
  )  # [B, N]
  firsts = (found // widths).astype(jnp.int32)
  lasts = firsts + (found % widths).astype(jnp.int32)
  start = jnp.take_along_axis(first, firsts, axis=1)
  return {
    'firsts': firsts,
    'lasts': lasts,
    'scores': jnp.stack([start, best - start], -1),
    'nulls': logits[:, 0],
  }


def make_batch(
  data: task_data.Data, split: span_data.Split, rows: np.ndarray, length: int
) -> task.Batch:
  """Returns the batch of some rows of a split; unknown labels are 0."""
  made, labels = split.windows, np.zeros((len(rows), _OUTPUTS), np.int32)
  if split.labels is not None:
    labels = split.labels[rows]
  return encode.make_batch(made.encoded, rows, length, data.pad_id) | {
    'labels': labels,
    'starts': made.starts[rows],
    'label_weights': np.ones(len(rows), np.float32),
  }


keep = predictions.fill


def score(
  config, data: task_data.Data, ranked: dict[str, np.ndarray]
) -> dict[str, float]:
  """Returns {metric: value} of dev."""
  settings = span_data.get_settings(config)
  found = span_answers.choose(data.splits['dev'], ranked, settings, tune=True)
  return span_answers.summarise(found.scores)


def list_columns(config) -> tuple[str, ...]:
  """Returns no columns: a file of questions has none."""
  del config
  return ()


def describe(batch: dict[str, np.ndarray]) -> list[str]:
  """Describes the first batch, as lines to print."""
  tokens, labels = batch['input_mask'].sum(), batch['labels']
  return [
    f'first batch: {len(labels)} windows, '
    f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
    f'{(labels[:, 0] > 0).mean():.1%} hold the answer'
  ]
