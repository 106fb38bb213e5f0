"""Computes hidden states and attention of sentences with a trained model."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.model import bert_config, heads, precision
from bert_jax.tokenization.tokenizer import Tokenizer

# {name: which of the L + 1 hidden states}; see also `frozen_features.LAYERS`.
LAYERS = {
  'embeddings': slice(0, 1),
  'last': slice(-1, None),
  'second_to_last': slice(-2, -1),
  'sum_last_4': slice(-4, None),
  'concat_last_4': slice(-4, None),
  'all': slice(None),
}
_LENGTH_STEP = 32  # tokens


@dataclasses.dataclass(frozen=True)
class Features:
  """A model's outputs for one sentence or pair of S tokens, without padding.

  Attributes:
    tokens: S word pieces, including [CLS] and [SEP].
    hidden: float32 [S, D]; for layers='concat_last_4' [S, 4 D], for 'all'
      [L + 1, S, D].
    attention: probabilities, float32 [L, H, S (from), S (to)], or None.
  """

  tokens: tuple[str, ...]
  hidden: np.ndarray
  attention: np.ndarray | None


def extract(
  params: Any,
  config: bert_config.BertConfig,
  tokenizer: Tokenizer,
  texts: Sequence[str | tuple[str, str]],
  layers: str = 'last',
  attention: bool = False,
  batch_size: int = 32,
) -> Iterator[Features]:
  """Computes features in batches, in float32 and without dropout.

  All texts are checked before the first is computed.

  Args:
    texts: sentences, or pairs of them.
    layers: one of `LAYERS`, as in table 7 of the paper. `embeddings` is the
      normalised sum that enters the first layer. With norm='pre', the last
      layer's hidden states are taken after the final LayerNorm.
  """
  if layers not in LAYERS:
    raise errors.UserError(
      f'layers={layers!r} is not one of {", ".join(LAYERS)}.'
    )
  least = -(LAYERS[layers].start or 0)
  if config.num_layers < least:
    raise errors.UserError(
      f'layers={layers} needs {least} layers, the model has '
      f'{config.num_layers}; use last or all.'
    )
  if batch_size < 1:
    raise errors.UserError(f'batch_size={batch_size} must be at least 1.')
  rows = [_encode(config, tokenizer, i, text) for i, text in enumerate(texts)]
  config = dataclasses.replace(config, dtype='float32')
  for start in range(0, len(rows), batch_size):
    part = rows[start : start + batch_size]
    size = min(batch_size, len(rows))
    batch = pad(part, size, _LENGTH_STEP, config, tokenizer.pad_id)
    hidden, maps = jax.device_get(
      _compute(params, batch, config, layers, attention)
    )
    for i, row in enumerate(part):
      n = len(row['input_ids'])
      yield Features(
        tokens=tuple(tokenizer.tokens(row['input_ids'])),
        hidden=hidden[i, ..., :n, :],
        attention=maps[i, ..., :n, :n] if attention else None,
      )


def _encode(config, tokenizer, i, text):
  row = tokenizer.encode(*((text,) if isinstance(text, str) else text))
  if len(row['input_ids']) > config.max_positions:
    raise errors.UserError(
      f'sentence {i + 1} has {len(row["input_ids"])} tokens with [CLS] and '
      f'[SEP], the model takes {config.max_positions}; split it or shorten it.'
    )
  return row


def pad(
  rows: Sequence[dict[str, list[int]]],
  size: int,
  step: int,
  config: bert_config.BertConfig,
  pad_id: int,
) -> dict[str, np.ndarray]:
  """Returns a batch of `size` rows; rows without a text are padding.

  Args:
    rows: of `Tokenizer.encode`.
    step: tokens that the length is rounded up to, so that few are compiled.
  """
  longest = max(len(row['input_ids']) for row in rows)
  length = min(-longest // step * -step, config.max_positions)
  batch = {
    'input_ids': np.full((size, length), pad_id, np.int32),
    'input_mask': np.zeros((size, length), np.int32),
    'segment_ids': np.zeros((size, length), np.int32),
  }
  for i, row in enumerate(rows):
    for name, values in row.items():
      batch[name][i, : len(values)] = values
  return batch


@precision.jit_inference('config', 'layers', 'with_attention')
def _compute(params, batch, config, layers, with_attention):
  """Returns hidden states [B, (L + 1,) S, D] and attention [B, L, H, S, S]."""
  hidden: list[jax.Array] = []
  _, sown = heads.PretrainingModel(config, with_nsp=False).apply(
    {'params': params},
    batch,
    deterministic=True,
    hidden=hidden,
    method='encode',
    mutable=['intermediates'],
  )
  chosen, maps = hidden[LAYERS[layers]], None
  if with_attention:
    found = sown['intermediates']['encoder']
    maps = [
      found[f'layer_{i}']['attention']['probabilities'][0]
      for i in range(config.num_layers)
    ]
    maps = jnp.stack(maps, axis=1)
  if layers == 'all':
    return jnp.stack(chosen, axis=1), maps
  if layers == 'sum_last_4':
    return sum(chosen), maps
  return jnp.concatenate(chosen, axis=-1), maps
