"""What is rounded: weights to the type of the activations, and in products.

The layers would round weights at each use. Here it happens where the weights
are sharded, once per update, so that a device rounds its own and half the
bytes are sent.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import config_dict

from bert_jax import param_names

# Used in float32 whatever the activations are: rows of embeddings are added up
# before they are rounded, and so are the gradients of rows, of which a frequent
# token has thousands.
_FLOAT32 = re.compile(r'embeddings/.+|(.+/)?\w*norm/.+|nsp/.+|mlm/bias')

# What products of float32 may round their operands to; jax's names.
PRODUCTS = ('float32', 'tensorfloat32', 'bfloat16')


def set_products(config: config_dict.ConfigDict):
  """Returns a context in which products of float32 are traced as asked.

  Products whose code says how they round (attention kernels, one-hot rows)
  stay as they are. The context is part of the key under which jax.jit keeps
  programs.

  Args:
    config: the experiment.
  """
  asked = config.compute.matmul_precision
  # bfloat16 has nothing to round, but kernels refuse to be asked.
  if config.model.dtype != 'float32':
    asked = 'default'
  return jax.default_matmul_precision(asked)


def cast(params: Any, dtype: str):
  """Returns the parameters as the model's products want them.

  Args:
    params: float32.
    dtype: of activations, `model.dtype`.
  """

  def rounded(name, x):
    return x if _FLOAT32.fullmatch(name) else x.astype(jnp.dtype(dtype))

  return param_names.map_named(rounded, params)
