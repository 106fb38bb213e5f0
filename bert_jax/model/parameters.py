"""Parameters of the pre-training model: new ones, and without padding rows."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import param_names
from bert_jax.model import heads

# So that every slice of up to 256 chips has equal shares of the embeddings, and
# the TPU's matrix unit (128 or 256 wide) whole tiles: 30522 words have 30720
# rows.
VOCAB_MULTIPLE = 256


def drop_padding_rows(params: Any, vocab_size: int):
  """Returns trained parameters without padding rows of the vocabulary."""

  def cut(name, x):
    word = name in ('embeddings/word/embedding', 'mlm/bias')
    return x[:vocab_size] if word else x

  return param_names.map_named(cut, params)


def init(module: heads.PretrainingModel, key: jax.Array):
  """Returns new parameters."""
  one = jnp.ones((1, 8), jnp.int32)
  batch = {
    'input_ids': one,
    'input_mask': one,
    'segment_ids': one,
    'masked_lm_positions': one[:, :1],
  }
  # The kernels would refuse so short a row.
  plain = dataclasses.replace(module.config, attention='xla')
  return module.clone(config=plain).init(key, batch)['params']
