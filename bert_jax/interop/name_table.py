"""The names of BERT's parameters here, in Hugging Face and in Google's code.

The table has 26 rows: for the embeddings, for each layer, and for the heads.
"""

from typing import NamedTuple

from bert_jax.model import bert_config

# A file has each of these parts completely or not at all, and always the
# encoder, which includes the embeddings.
PARTS = ('encoder', 'mlm', 'pooler', 'nsp')

# Columns: our name, Hugging Face's name, Google's name, `Row.layout`,
# `Row.transposed_in` and `Row.shape`, as names of BertConfig fields. {i} is the
# number of a layer.
# fmt: off
_EMBEDDINGS = (
  ('embeddings/word/embedding',
   'bert.embeddings.word_embeddings.weight',
   'bert/embeddings/word_embeddings',
   'same', (), ('vocab_size', 'hidden_size')),
  ('embeddings/position/embedding',
   'bert.embeddings.position_embeddings.weight',
   'bert/embeddings/position_embeddings',
   'same', (), ('max_positions', 'hidden_size')),
  ('embeddings/type/embedding',
   'bert.embeddings.token_type_embeddings.weight',
   'bert/embeddings/token_type_embeddings',
   'same', (), ('type_vocab_size', 'hidden_size')),
  ('embeddings/norm/scale',
   'bert.embeddings.LayerNorm.weight',
   'bert/embeddings/LayerNorm/gamma',
   'same', (), ('hidden_size',)),
  ('embeddings/norm/bias',
   'bert.embeddings.LayerNorm.bias',
   'bert/embeddings/LayerNorm/beta',
   'same', (), ('hidden_size',)),
)
_LAYER = (
  ('encoder/layer_{i}/attention/qkv/kernel',
   ('bert.encoder.layer.{i}.attention.self.query.weight',
    'bert.encoder.layer.{i}.attention.self.key.weight',
    'bert.encoder.layer.{i}.attention.self.value.weight'),
   ('bert/encoder/layer_{i}/attention/self/query/kernel',
    'bert/encoder/layer_{i}/attention/self/key/kernel',
    'bert/encoder/layer_{i}/attention/self/value/kernel'),
   'joined_qkv', ('hf',), ('hidden_size', 'hidden_size')),
  ('encoder/layer_{i}/attention/qkv/bias',
   ('bert.encoder.layer.{i}.attention.self.query.bias',
    'bert.encoder.layer.{i}.attention.self.key.bias',
    'bert.encoder.layer.{i}.attention.self.value.bias'),
   ('bert/encoder/layer_{i}/attention/self/query/bias',
    'bert/encoder/layer_{i}/attention/self/key/bias',
    'bert/encoder/layer_{i}/attention/self/value/bias'),
   'joined_qkv', (), ('hidden_size',)),
  ('encoder/layer_{i}/attention/out/kernel',
   'bert.encoder.layer.{i}.attention.output.dense.weight',
   'bert/encoder/layer_{i}/attention/output/dense/kernel',
   'split_heads', ('hf',), ('hidden_size', 'hidden_size')),
  ('encoder/layer_{i}/attention/out/bias',
   'bert.encoder.layer.{i}.attention.output.dense.bias',
   'bert/encoder/layer_{i}/attention/output/dense/bias',
   'same', (), ('hidden_size',)),
  ('encoder/layer_{i}/attention_norm/scale',
   'bert.encoder.layer.{i}.attention.output.LayerNorm.weight',
   'bert/encoder/layer_{i}/attention/output/LayerNorm/gamma',
   'same', (), ('hidden_size',)),
  ('encoder/layer_{i}/attention_norm/bias',
   'bert.encoder.layer.{i}.attention.output.LayerNorm.bias',
   'bert/encoder/layer_{i}/attention/output/LayerNorm/beta',
   'same', (), ('hidden_size',)),
  ('encoder/layer_{i}/mlp_in/kernel',
   'bert.encoder.layer.{i}.intermediate.dense.weight',
   'bert/encoder/layer_{i}/intermediate/dense/kernel',
   'same', ('hf',), ('hidden_size', 'mlp_size')),
  ('encoder/layer_{i}/mlp_in/bias',
   'bert.encoder.layer.{i}.intermediate.dense.bias',
   'bert/encoder/layer_{i}/intermediate/dense/bias',
   'same', (), ('mlp_size',)),
  ('encoder/layer_{i}/mlp_out/kernel',
   'bert.encoder.layer.{i}.output.dense.weight',
   'bert/encoder/layer_{i}/output/dense/kernel',
   'same', ('hf',), ('mlp_size', 'hidden_size')),
  ('encoder/layer_{i}/mlp_out/bias',
   'bert.encoder.layer.{i}.output.dense.bias',
   'bert/encoder/layer_{i}/output/dense/bias',
   'same', (), ('hidden_size',)),
  ('encoder/layer_{i}/mlp_norm/scale',
   'bert.encoder.layer.{i}.output.LayerNorm.weight',
   'bert/encoder/layer_{i}/output/LayerNorm/gamma',
   'same', (), ('hidden_size',)),
  ('encoder/layer_{i}/mlp_norm/bias',
   'bert.encoder.layer.{i}.output.LayerNorm.bias',
   'bert/encoder/layer_{i}/output/LayerNorm/beta',
   'same', (), ('hidden_size',)),
)
_HEADS = (
  ('mlm/transform/kernel',
   'cls.predictions.transform.dense.weight',
   'cls/predictions/transform/dense/kernel',
   'same', ('hf',), ('hidden_size', 'hidden_size')),
  ('mlm/transform/bias',
   'cls.predictions.transform.dense.bias',
   'cls/predictions/transform/dense/bias',
   'same', (), ('hidden_size',)),
  ('mlm/norm/scale',
   'cls.predictions.transform.LayerNorm.weight',
   'cls/predictions/transform/LayerNorm/gamma',
   'same', (), ('hidden_size',)),
  ('mlm/norm/bias',
   'cls.predictions.transform.LayerNorm.bias',
   'cls/predictions/transform/LayerNorm/beta',
   'same', (), ('hidden_size',)),
  ('mlm/bias',
   'cls.predictions.bias',
   'cls/predictions/output_bias',
   'same', (), ('vocab_size',)),
  ('pooler/kernel',
   'bert.pooler.dense.weight',
   'bert/pooler/dense/kernel',
   'same', ('hf',), ('hidden_size', 'hidden_size')),
  ('pooler/bias',
   'bert.pooler.dense.bias',
   'bert/pooler/dense/bias',
   'same', (), ('hidden_size',)),
  # The only kernel that is transposed in Google's code, too.
  ('nsp/kernel',
   'cls.seq_relationship.weight',
   'cls/seq_relationship/output_weights',
   'same', ('hf', 'google'), ('hidden_size', 2)),
  ('nsp/bias',
   'cls.seq_relationship.bias',
   'cls/seq_relationship/output_bias',
   'same', (), (2,)),
)
# fmt: on

# Hugging Face's files may contain tied parameters twice: {copy: original}.
HF_TIED = {
  'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
  'cls.predictions.decoder.bias': 'cls.predictions.bias',
}


class Row(NamedTuple):
  """One of our parameters, and the corresponding arrays of other formats.

  Attributes:
    part: one of `PARTS`.
    ours: our name.
    hf: Hugging Face's name; three for query, key and value, which are one array
      here.
    google: Google's name, or three.
    layout: 'same' if our array has their shape; 'joined_qkv' if it joins query,
      key and value and has an axis for the heads; 'split_heads' if it only has
      an axis for the heads.
    transposed_in: the formats that store it transposed, as [outputs, inputs]:
      'hf', 'google'.
    shape: shape of each of their arrays, before it is transposed.
  """

  part: str
  ours: str
  hf: tuple[str, ...]
  google: tuple[str, ...]
  layout: str
  transposed_in: tuple[str, ...]
  shape: tuple[int, ...]


def list_rows(config: bert_config.BertConfig) -> list[Row]:
  """Returns a row for every parameter of a BERT with all heads."""
  layers = range(config.num_layers)
  return [
    *(_fill(row, config) for row in _EMBEDDINGS),
    *(_fill(row, config, i) for i in layers for row in _LAYER),
    *(_fill(row, config) for row in _HEADS),
  ]


def _fill(row, config, i=None) -> Row:
  """Inserts the number of a layer and the sizes of a config into a row."""
  ours, hf, google, layout, transposed_in, sizes = row
  module = ours.split('/')[0]
  hf, google = (
    tuple(name.format(i=i) for name in ([x] if isinstance(x, str) else x))
    for x in (hf, google)
  )
  return Row(
    part=module if module in PARTS else 'encoder',
    ours=ours.format(i=i),
    hf=hf,
    google=google,
    layout=layout,
    transposed_in=transposed_in,
    shape=tuple(
      size if isinstance(size, int) else getattr(config, size) for size in sizes
    ),
  )
