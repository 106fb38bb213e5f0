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

from bert_jax import param_names

_WORDS = re.compile('(beside/)?embeddings/word/embedding')
# Kept in float32 for all types of activations. A token's embeddings are added up
# before they are rounded; those of words are rounded as well, since they are large.
# The heads of tasks, and what is before them, compute in float32.
# Biases are rounded where they are added: XLA for TPUs would compute a sum of
# gradients in the type to which it is rounded afterwards.
_FLOAT32 = re.compile(
  r'(beside/)?embeddings/(position|type)/.+|(.+/)?\w*norm/.+|.+/bias'
  r'|(nsp|classifier|bilstm|mix)/.+'
)


def set_products(precision: str, dtype: str):
  """Returns a context that sets the precision of traced float32 products.

  Products with a precision of their own (attention kernels, one-hot rows) are
  not affected. The context is part of jax.jit's cache key.
  """
  # Products of bfloat16 round nothing, and kernels reject the setting.
  return jax.default_matmul_precision(
    precision if dtype == 'float32' else 'default'
  )


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
  """Rounds parameters, but keeps the type of word embeddings: `widen_words`."""
  return widen_words(round_weights(params, dtype))


def round_weights(params: Any, dtype: str):
  """Rounds float32 parameters to the activations' type, `_FLOAT32` excepted."""

  def rounded(name, x):
    return x if _FLOAT32.fullmatch(name) else x.astype(jnp.dtype(dtype))

  return param_names.map_named(rounded, params)


def widen_words(params: Any):
  """Returns rounded parameters with the word embeddings as float32.

  So the gradients of a word's rows, of which a frequent word has thousands, are
  added up in float32. Each use of the embeddings rounds them again, which is
  exact, so that XLA can remove both conversions.
  """
  return param_names.map_named(
    lambda name, x: x.astype(jnp.float32) if _WORDS.fullmatch(name) else x,
    params,
  )
