"""The names of parameters here, in Hugging Face and in Google's code.

BERT's table has 26 rows: for the embeddings, for each layer, and for the heads.
ModernBERT's has 12, and no names of Google's.
"""

import re
from typing import NamedTuple

from bert_jax.model import bert_config

# A file has each of these parts completely or not at all, and always the
# encoder, which includes the embeddings.
PARTS = ('encoder', 'mlm', 'pooler', 'nsp')

# Columns: our name, Google's, `Row.shape` by the letters of
# `model/encoder.py`, and `Row.layout`, if it is not 'same'.
# fmt: off
_EMBEDDINGS = (
  ('embeddings/word/embedding', 'bert/embeddings/word_embeddings', 'VD'),
  ('embeddings/position/embedding', 'bert/embeddings/position_embeddings', 'SD'),
  ('embeddings/type/embedding', 'bert/embeddings/token_type_embeddings', 'TD'),
  ('embeddings/norm/scale', 'bert/embeddings/LayerNorm/gamma', 'D'),
  ('embeddings/norm/bias', 'bert/embeddings/LayerNorm/beta', 'D'),
)
# Below encoder/layer_{i}/ and bert/encoder/layer_{i}/.
_LAYER = (
  ('attention/qkv/kernel', 'attention/self/QKV/kernel', 'DD', 'joined_qkv'),
  ('attention/qkv/bias', 'attention/self/QKV/bias', 'D', 'joined_qkv'),
  ('attention/out/kernel', 'attention/output/dense/kernel', 'DD', 'split_heads'),
  ('attention/out/bias', 'attention/output/dense/bias', 'D'),
  ('attention_norm/scale', 'attention/output/LayerNorm/gamma', 'D'),
  ('attention_norm/bias', 'attention/output/LayerNorm/beta', 'D'),
  ('mlp_in/kernel', 'intermediate/dense/kernel', 'DF'),
  ('mlp_in/bias', 'intermediate/dense/bias', 'F'),
  ('mlp_out/kernel', 'output/dense/kernel', 'FD'),
  ('mlp_out/bias', 'output/dense/bias', 'D'),
  ('mlp_norm/scale', 'output/LayerNorm/gamma', 'D'),
  ('mlp_norm/bias', 'output/LayerNorm/beta', 'D'),
)
_HEADS = (
  ('mlm/transform/kernel', 'cls/predictions/transform/dense/kernel', 'DD'),
  ('mlm/transform/bias', 'cls/predictions/transform/dense/bias', 'D'),
  ('mlm/norm/scale', 'cls/predictions/transform/LayerNorm/gamma', 'D'),
  ('mlm/norm/bias', 'cls/predictions/transform/LayerNorm/beta', 'D'),
  ('mlm/bias', 'cls/predictions/output_bias', 'V'),
  ('pooler/kernel', 'bert/pooler/dense/kernel', 'DD'),
  ('pooler/bias', 'bert/pooler/dense/bias', 'D'),
  ('nsp/kernel', 'cls/seq_relationship/output_weights', 'D2'),
  ('nsp/bias', 'cls/seq_relationship/output_bias', '2'),
)
# ModernBERT's, with Hugging Face's names.
_MODERN_EMBEDDINGS = (
  ('embeddings/word/embedding', 'model.embeddings.tok_embeddings.weight', 'VD'),
  ('embeddings/norm/scale', 'model.embeddings.norm.weight', 'D'),
)
# Below encoder/layer_{i}/ and model.layers.{i}.; the first layer lacks the first.
_MODERN_LAYER = (
  ('attention_norm/scale', 'attn_norm.weight', 'D'),
  ('attention/qkv/kernel', 'attn.Wqkv.weight', 'DQ', 'one_qkv'),
  ('attention/out/kernel', 'attn.Wo.weight', 'DD', 'split_heads'),
  ('mlp_norm/scale', 'mlp_norm.weight', 'D'),
  ('mlp_in/kernel', 'mlp.Wi.weight', 'DG', 'gated'),
  ('mlp_out/kernel', 'mlp.Wo.weight', 'FD'),
)
_MODERN_HEADS = (
  ('encoder/final_norm/scale', 'model.final_norm.weight', 'D'),
  ('mlm/transform/kernel', 'head.dense.weight', 'DD'),
  ('mlm/norm/scale', 'head.norm.weight', 'D'),
  ('mlm/bias', 'decoder.bias', 'V'),
)
# fmt: on

# Hugging Face's files may contain tied parameters twice: {copy: original}.
HF_TIED = {
  'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
  'cls.predictions.decoder.bias': 'cls.predictions.bias',
  'decoder.weight': 'model.embeddings.tok_embeddings.weight',
}


class Row(NamedTuple):
  """One of our parameters, and the corresponding arrays of other formats."""

  part: str  # one of `PARTS`
  ours: str  # our name
  # Their name, or three for query, key and value, which are one array here.
  hf: tuple[str, ...]
  google: tuple[str, ...]
  # 'same' if our array has their shape; 'joined_qkv' if it joins query, key and
  # value and has an axis for the heads; 'split_heads' if it only has that axis;
  # 'one_qkv' and 'gated' if it has axes for parts that theirs joins as well.
  layout: str
  # The formats that store it as [outputs, inputs]: 'hf', 'google'.
  transposed_in: tuple[str, ...]
  shape: tuple[int, ...]  # of each of their arrays, before it is transposed


def list_rows(config: bert_config.BertConfig) -> list[Row]:
  """Returns a row for every parameter of a model with all heads."""
  top, layer, heads = _EMBEDDINGS, _LAYER, _HEADS
  prefix = 'bert/encoder/layer_{}/'
  if config.modern:
    top, layer, heads = _MODERN_EMBEDDINGS, _MODERN_LAYER, _MODERN_HEADS
    prefix = 'model.layers.{}.'
  rows = [*top]
  for i in range(config.num_layers):
    of = layer[1:] if config.modern and i == 0 else layer
    at, there = f'encoder/layer_{i}/', prefix.format(i)
    rows += [(at + ours, there + theirs, *rest) for ours, theirs, *rest in of]
  return [_make_row(config, *row) for row in [*rows, *heads]]


def _make_row(config, ours, theirs, letters, layout='same') -> Row:
  sizes = {
    'V': config.vocab_size,
    'S': config.max_positions,
    'T': config.type_vocab_size,
    'D': config.hidden_size,
    'F': config.mlp_size,
    '2': 2,
    'Q': 3 * config.hidden_size,
    'G': 2 * config.mlp_size,
  }
  names = [theirs]
  if layout == 'joined_qkv':
    names = [theirs.replace('QKV', x) for x in ('query', 'key', 'value')]
  # Of Google's kernels, only next sentence prediction's is transposed.
  transposed_in = ('hf',) if ours.endswith('/kernel') else ()
  transposed_in += ('google',) if ours == 'nsp/kernel' else ()
  part = ours.split('/')[0]
  return Row(
    part if part in PARTS else 'encoder',
    ours,
    tuple(names if config.modern else map(_to_hf, names)),
    () if config.modern else tuple(names),
    layout,
    transposed_in,
    tuple(sizes[letter] for letter in letters),
  )


def _to_hf(google: str) -> str:
  """Returns Hugging Face's name for an array by Google's name.

  >>> _to_hf('bert/encoder/layer_3/output/LayerNorm/gamma')
  'bert.encoder.layer.3.output.LayerNorm.weight'
  """
  name = google.replace('/', '.').replace('layer_', 'layer.')
  name = re.sub(r'\.(kernel|gamma|output_weights)$', '.weight', name)
  name = re.sub(r'\.(beta|output_bias)$', '.bias', name)
  return f'{name}.weight' if name.endswith('_embeddings') else name
