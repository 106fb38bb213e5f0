"""Initial weights with which attention adds to the hidden states from the start.

With BERT's initial weights, of standard deviation 0.02, attention is uniform
and adds little to the residual stream, the less the narrower the model is. A
small model spends most of a small budget predicting by word frequency alone,
until it has found that the tokens beside a mask say most about it. So values and
outputs of attention are wider, and BERT's first layer starts by looking at
neighbours, within its own parameters: the first dimensions of the position
embeddings hold sines and cosines of the position, and a head's queries are its
keys, moved by as many positions as it looks away. The modern body, with rotary
positions, finds neighbours quickly by itself; but it has no biases, so its word
embeddings get a direction in common, as a constant that every matrix can use. The
softmax of the tied decoder cancels it. Everything stays trainable. Measured in
docs/plateau.md and docs/modern.md.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import param_names
from bert_jax.model import bert_config, modern

# How far the heads of the first layer look, in their order; others are random.
_OFFSETS = (-1, 1, -2, 2, -3, 3, -4, 4)  # tokens
_PAIRS = 32  # of a sine and a cosine, at most
# Radians per token of the first pair and, nearly, of the last one: wavelengths
# of 2.2 to 20 tokens. With the original Transformer's wavelengths of up to
# 63,000 tokens, neighbouring positions look alike.
_FASTEST, _SLOWEST = 2.85, 0.29
# Standard deviation of the position embeddings in these dimensions, as a
# multiple of the words' standard deviation.
_WAVES = 1.14
_SCALE = 1.6  # of queries and keys, for 32 pairs in heads of size 64
_COMMON = 0.5  # root mean square of the direction, in standard deviations


def initialise(params: dict, config: bert_config.BertConfig) -> dict:
  """Returns initial parameters as `config.attention_init` says, if not random.

  In all layers, the values and the output of attention get a standard deviation
  of sqrt(2 / (5 D)), so that attention adds equally much at any width.
  """
  wider = math.sqrt(2 / (5 * config.hidden_size)) / config.kernel_std
  near = config.attention_init == 'neighbours'

  def change(name, x):
    if config.modern and name == 'embeddings/word/embedding':
      return x.at[: config.vocab_size].add(make_common(config))
    if near and name == 'embeddings/position/embedding':
      waves = _make_waves(config)
      return x.at[:, : waves.shape[1]].set(waves)
    if name.endswith('attention/out/kernel'):
      return x * (wider / modern.scale_into(config))
    if name.endswith('attention/qkv/kernel'):
      x = x.at[:, 2].multiply(wider)  # [D, 3, H, K]
      return _point(x, config) if near and '/layer_0/' in name else x
    return x

  return param_names.map_named(change, params)


def make_common(config: bert_config.BertConfig) -> np.ndarray:
  """Returns what word embeddings of the modern body have in common, [1, D].

  Its mean is 0, since LayerNorm takes the mean away.
  """
  signs = np.where(np.arange(config.hidden_size) % 2, 1.0, -1.0)
  common = _COMMON * config.kernel_std * signs
  return common[None].astype(np.float32)


def _get_frequencies(config):
  """Returns radians per token, [pairs]."""
  pairs = min(_PAIRS, config.head_size // 2, config.hidden_size // 4)
  return _FASTEST * (_SLOWEST / _FASTEST) ** (np.arange(pairs) / pairs)


def _make_waves(config):
  """Returns position embeddings in the first dimensions, [S, 2 pairs]."""
  angles = np.arange(config.max_positions)[:, None] * _get_frequencies(config)
  waves = np.concatenate([np.sin(angles), np.cos(angles)], -1)
  return math.sqrt(2) * _WAVES * config.kernel_std * waves


def _point(kernel: jax.Array, config):
  """Makes heads of the first layer's kernel [D, 3, H, K] look at neighbours."""
  frequencies = _get_frequencies(config)
  n = len(frequencies)
  # A score is a sum over the pairs, divided by sqrt(K).
  scale = _SCALE * math.sqrt(4 * math.sqrt(config.head_size) / max(n, 1))
  if config.causal:  # only one side is seen
    offsets = [o for o in _OFFSETS if (o > 0) == config.reverse]
  else:
    offsets = _OFFSETS
  for head, offset in enumerate(offsets[: config.num_heads]):
    cos = np.diag(np.cos(frequencies * offset))
    sin = np.diag(np.sin(frequencies * offset))
    # (sin, cos) of a position, times this, is (sin, cos) of position + offset.
    moved = np.block([[cos, -sin], [sin, cos]])
    query_key = scale * jnp.stack([moved, np.eye(2 * n)], 1)  # [2 n, 2, 2 n]
    kernel = kernel.at[: 2 * n, :2, head, : 2 * n].add(query_key)
  return kernel
