"""Which weights are rounded to the type of the activations, once per update.

The layers would round them at each use. Here it happens where the weights are
in shares, so that a device rounds its own and half the bytes are sent.
"""

import re

import jax.numpy as jnp

from bert_jax import names

# Used in float32 whatever the activations are: rows of embeddings are added up
# before they are rounded, and so are the gradients of rows, of which a frequent
# token has thousands.
_FLOAT32 = re.compile(r'embeddings/.+|(.+/)?\w*norm/.+|nsp/.+|mlm/bias')


def cast(params, dtype: str):
  """Returns the parameters as the model's products want them.

  Args:
    params: float32.
    dtype: of activations, `model.dtype`.
  """

  def rounded(name, x):
    return x if _FLOAT32.fullmatch(name) else x.astype(jnp.dtype(dtype))

  return names.map_named(rounded, params)
