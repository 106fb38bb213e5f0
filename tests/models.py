"""A tiny model whose parameters are all different, and its vocabulary."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import heads, model
from bert_jax import tokenizer as tokenizer_lib
from bert_jax.interop import hf_export

# Sizes that differ, so that mix-ups fail: K = 4.
CONFIG = model.BertConfig(
  vocab_size=11,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  mlp_size=12,
  max_positions=7,
  type_vocab_size=3,
)
VOCAB = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s é e'.split()
TOKENIZER = tokenizer_lib.Tokenizer(tuple(VOCAB), lowercase=True)


@functools.cache
def shapes(config, with_nsp):
  """Returns the parameters' shapes, as a tree of jax.ShapeDtypeStruct."""
  x = jnp.zeros((1, 5), jnp.int32)
  names = 'input_ids', 'input_mask', 'segment_ids', 'masked_lm_positions'
  return jax.eval_shape(
    heads.PretrainingModel(config, with_nsp).init,
    jax.random.key(0),
    dict.fromkeys(names, x),
  )['params']


def make_params(config=CONFIG, with_nsp=True, first=0):
  """Returns parameters that are all different: first, first + 1, ..."""
  leaves, tree = jax.tree.flatten(shapes(config, with_nsp))
  starts = np.cumsum([first] + [leaf.size for leaf in leaves])
  return tree.unflatten(
    [
      np.arange(start, start + leaf.size, dtype=np.float32).reshape(leaf.shape)
      for start, leaf in zip(starts, leaves, strict=False)
    ]
  )


def export_to(path) -> str:
  """Exports the model to a path, and returns it."""
  hf_export.export(str(path), make_params(), CONFIG, True, TOKENIZER)
  return str(path)


def assert_same(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)
