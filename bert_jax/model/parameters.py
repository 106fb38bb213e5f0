"""Parameters of the pre-training model: initial values, shapes, padding."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import param_names
from bert_jax.model import heads, initial_attention

# So that the embeddings' rows are divisible by the devices of slices of up to
# 256 chips, and by the tiles of a TPU's matrix unit (128 or 256 wide): 30522
# words have 30720 rows.
VOCAB_MULTIPLE = 256


def drop_padding_rows(params: Any, vocab_size: int):
  """Returns parameters without the padding rows of the vocabulary."""

  def cut(name, x):
    word = name in ('embeddings/word/embedding', 'mlm/bias')
    return x[:vocab_size] if word else x

  return param_names.map_named(cut, params)


def skip_layers(
  init: Callable[[jax.Array], Any], stays_new: str = ''
) -> Callable[[jax.Array], Any]:
  """Returns `init` with zeros for the layers that a trained model replaces.

  The compiler then drops their random draws, which on a CPU saves seconds for
  BASE.

  Args:
    stays_new: regular expression; layers in whose names it is found are drawn.
  """

  def skip(name, x):
    drawn = stays_new and re.search(stays_new, name)
    return jnp.zeros_like(x) if is_layer(name) and not drawn else x

  return lambda key: param_names.map_named(skip, init(key))


def is_layer(name: str) -> bool:
  """Returns whether a parameter belongs to a layer, which every model has."""
  return name.startswith('encoder/layer_')


@functools.partial(jax.jit, static_argnames='module')  # traced once
def init(
  module: heads.PretrainingModel,
  key: jax.Array,
  decoder_bias: np.ndarray | None = None,
):
  """Returns new parameters.

  Args:
    decoder_bias: of the MLM decoder, float32 [V]; None is zeros.
  """
  one = jnp.ones((1, 8), jnp.int32)
  batch = {
    'input_ids': one,
    'input_mask': one,
    'segment_ids': one,
    'masked_lm_positions': one[:, :1],
  }
  # Fused attention does not support such short rows.
  plain = dataclasses.replace(module.config, attention='xla')
  params = module.clone(config=plain).init(key, batch)['params']
  if module.config.attention_init != 'random':
    params = initial_attention.initialise(params, module.config)
  if decoder_bias is not None:
    bias = params['mlm']['bias'].at[: len(decoder_bias)].set(decoder_bias)
    params['mlm']['bias'] = bias
  return params


def list_shapes(module: heads.PretrainingModel) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of a model's parameters by name."""
  params = jax.eval_shape(functools.partial(init, module), jax.random.key(0))
  return {name: x.shape for name, x in param_names.flatten(params).items()}
