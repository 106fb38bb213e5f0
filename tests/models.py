"""A tiny model whose parameters are all different, and its vocabulary."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data import manifest_file
from bert_jax.interop import hugging_face
from bert_jax.model import bert_config, heads
from bert_jax.tokenization.tokenizer import Tokenizer

# Sizes that differ, so that mix-ups fail: K = 4.
CONFIG = bert_config.BertConfig(
  vocab_size=11,
  hidden_size=8,
  num_layers=2,
  num_heads=2,
  mlp_size=12,
  max_positions=7,
  type_vocab_size=3,
)
MODERN = dataclasses.replace(
  CONFIG,
  type_vocab_size=2,
  dropout=0.0,
  attention_dropout=0.0,
  activation='gelu',
  norm='pre',
  norm_epsilon=1e-5,
  body='modern',
  window=6,
  rope_theta=160_000.0,
)
VOCAB = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s é e'.split()
NORMALIZER = {  # of its tokenizer.json
  'type': 'BertNormalizer',
  'clean_text': True,
  'handle_chinese_chars': True,
  'strip_accents': True,
  'lowercase': True,
}
TOKENIZER = Tokenizer(tuple(VOCAB), lowercase=True)


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


def make_params(config=CONFIG, with_nsp=True, seed=0):
  """Returns parameters that are all different, of a size fit for products.

  They are spread evenly over (-0.6, 0.6), in random order, and scales of
  LayerNorm around 1: with a standard deviation of 1/sqrt(D), products neither
  grow nor depend on how a processor rounds.
  """
  named, tree = jax.tree.flatten_with_path(shapes(config, with_nsp))
  scales = [path[-1].key == 'scale' for path, _ in named]
  leaves = [leaf for _, leaf in named]
  ends = np.cumsum([leaf.size for leaf in leaves])
  order = np.random.default_rng(seed).permutation(ends[-1])
  values = np.float32(0.6) * ((2 * order + 1) / ends[-1] - 1)
  return tree.unflatten(
    [
      (part + scale).reshape(leaf.shape).astype(np.float32)
      for leaf, scale, part in zip(
        leaves, scales, np.split(values, ends[:-1]), strict=True
      )
    ]
  )


def export_to(path, config=CONFIG) -> str:
  """Exports the model to a path, and returns it."""
  params = make_params(config, not config.modern)
  hugging_face.export(str(path), params, config, TOKENIZER)
  return str(path)


def edit_json(path, **values):
  """Changes values of a JSON object in a file; `...` removes one."""
  with open(path, encoding='utf-8') as f:
    found = json.load(f) | values
  with open(path, 'w', encoding='utf-8') as f:
    json.dump({name: x for name, x in found.items() if x is not ...}, f)


def write_data(folder, words=VOCAB, **recipe) -> str:
  """Writes what says how prepared data was tokenized; returns vocab.txt."""
  folder.mkdir(parents=True, exist_ok=True)
  manifest = {'recipe': {'lowercase': True, 'strip_accents': True, **recipe}}
  manifest_file.write(str(folder), manifest)
  path = folder / 'vocab.txt'
  path.write_text('\n'.join(words) + '\n', encoding='utf-8')
  return str(path)


def assert_same(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)
