"""The names of BERT's parameters here, in Hugging Face and in Google's code.

The table has 26 rows: for the embeddings, for each layer, and for the heads.
"""

import re
from typing import NamedTuple

from bert_jax.model import bert_config

# A file has each of these parts completely or not at all, and always the
# encoder, which includes the embeddings.
PARTS = ('encoder', 'mlm', 'pooler', 'nsp')

# Columns: our name, Google's name, `Row.shape` by the letters of
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
# fmt: on

# Hugging Face's files may contain tied parameters twice: {copy: original}.
HF_TIED = {
  'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
  'cls.predictions.decoder.bias': 'cls.predictions.bias',
}


class Row(NamedTuple):
  """One of our parameters, and the corresponding arrays of other formats."""

  part: str  # one of `PARTS`
  ours: str  # our name
  # Their name, or three for query, key and value, which are one array here.
  hf: tuple[str, ...]
  google: tuple[str, ...]
  # 'same' if our array has their shape; 'joined_qkv' if it joins query, key and
  # value and has an axis for the heads; 'split_heads' if it only has that axis.
  layout: str
  # The formats that store it as [outputs, inputs]: 'hf', 'google'.
  transposed_in: tuple[str, ...]
  shape: tuple[int, ...]  # of each of their arrays, before it is transposed


def list_rows(config: bert_config.BertConfig) -> list[Row]:
  """Returns a row for every parameter of a BERT with all heads."""
  rows = [*_EMBEDDINGS]
  for i in range(config.num_layers):
    at, theirs = f'encoder/layer_{i}/', f'bert/encoder/layer_{i}/'
    rows += [(at + x, theirs + google, *rest) for x, google, *rest in _LAYER]
  return [_make_row(config, *row) for row in [*rows, *_HEADS]]


def _make_row(config, ours, google, letters, layout='same') -> Row:
  sizes = {
    'V': config.vocab_size,
    'S': config.max_positions,
    'T': config.type_vocab_size,
    'D': config.hidden_size,
    'F': config.mlp_size,
    '2': 2,
  }
  names = [google]
  if layout == 'joined_qkv':
    names = [google.replace('QKV', x) for x in ('query', 'key', 'value')]
  # Of Google's kernels, only next sentence prediction's is transposed.
  transposed_in = ('hf',) if ours.endswith('/kernel') else ()
  transposed_in += ('google',) if ours == 'nsp/kernel' else ()
  part = ours.split('/')[0]
  return Row(
    part if part in PARTS else 'encoder',
    ours,
    tuple(map(_to_hf, names)),
    tuple(names),
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
