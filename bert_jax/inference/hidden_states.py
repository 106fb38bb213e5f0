"""Computes hidden states and attention of sentences with a trained model."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference import padding
from bert_jax.model import bert_config, classifier, heads, precision
from bert_jax.tokenization.tokenizer import Tokenizer

# Names in `classifier.LAYERS` of what is not learnt.
LAYERS = [x for x in classifier.LAYERS if not x.startswith('weighted')]
_LENGTH_STEP = 32  # tokens


class Features(NamedTuple):
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
  classifier.check_layers('layers', layers, config.num_layers)
  given = ((text,) if isinstance(text, str) else text for text in texts)
  rows = [tokenizer.encode(*text) for text in given]
  ids = [row['input_ids'] for row in rows]
  for i, row in enumerate(ids, 1):
    padding.check_length(f'sentence {i}', len(row), config.max_positions)
  firsts = [row['segment_ids'].count(0) for row in rows]
  encoded = padding.chain(tokenizer, ids, firsts)
  config = dataclasses.replace(config, dtype='float32')
  size = min(batch_size, len(rows))
  for start in range(0, len(rows), batch_size):
    full = np.minimum(np.arange(start, start + size), len(rows) - 1)
    longest = encoded.lengths[full].max()
    length = padding.round_up(longest, _LENGTH_STEP, config.max_positions)
    batch = encoded.make_batch(full, length, tokenizer.pad_id)
    hidden, maps = jax.device_get(
      _compute(params, batch, config, layers, attention)
    )
    for i, row in enumerate(ids[start : start + size]):
      n = len(row)
      seen = maps[i, ..., :n, :n] if attention else None
      yield Features(tuple(tokenizer.tokens(row)), hidden[i, ..., :n, :], seen)


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
  chosen, maps = hidden[classifier.LAYERS[layers]], None
  if with_attention:
    sown = sown['intermediates']['encoder']
    maps = [
      sown[f'layer_{i}']['attention']['probabilities'][0]
      for i in range(config.num_layers)
    ]
    maps = jnp.stack(maps, axis=1)
  if layers == 'all':
    return jnp.stack(chosen, axis=1), maps
  if layers == 'sum_last_4':
    return sum(chosen), maps
  return jnp.concatenate(chosen, axis=-1), maps
