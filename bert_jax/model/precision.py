"""Rounding: weights to the activations' type, and operands of products.

The layers would round weights at each use. Instead they are rounded once per
update, while they are sharded, so that each device rounds only its shard and
the all-gather sends half the bytes.
"""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import config_dict

from bert_jax import param_names

# Kept in float32 for all types of activations. Embeddings are added up before
# they are rounded, and so are their rows' gradients, of which a frequent token
# has thousands. Biases are rounded where they are added: XLA for TPUs would
# compute a sum of gradients in the type to which it is rounded afterwards.
_FLOAT32 = re.compile(r'embeddings/.+|(.+/)?\w*norm/.+|nsp/.+|.+/bias')


def set_products(config: config_dict.ConfigDict):
  """Returns a context that sets the precision of traced float32 products.

  Products with a precision of their own (attention kernels, one-hot rows) are
  not affected. The context is part of jax.jit's cache key.
  """
  asked = config.compute.matmul_precision
  # Products of bfloat16 round nothing, and kernels reject the setting.
  if config.model.dtype != 'float32':
    asked = 'default'
  return jax.default_matmul_precision(asked)


def jit_inference(*static: str):
  """Returns a decorator that jits a function, with full float32 products.

  Every prediction outside of training is computed by such a function.
  """

  def decorate(function):
    @functools.partial(jax.jit, static_argnames=static)
    @functools.wraps(function)
    def traced(*args, **kwargs):
      with jax.default_matmul_precision('float32'):
        return function(*args, **kwargs)

    return traced

  return decorate


def cast(params: Any, dtype: str):
  """Rounds float32 parameters for products to the activations' type."""

  def rounded(name, x):
    return x if _FLOAT32.fullmatch(name) else x.astype(jnp.dtype(dtype))

  return param_names.map_named(rounded, params)
