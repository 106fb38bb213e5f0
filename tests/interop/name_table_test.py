"""The names and shapes of one table, in three vocabularies."""

import dataclasses

from bert_jax.interop import rename
from tests import models

CONFIG = dataclasses.replace(models.CONFIG, num_layers=1)
# Names without their prefixes, and the shape in Google's format. In Hugging
# Face's, * is transposed.
EMBEDDINGS = """
word_embeddings.weight           word_embeddings        11 8
position_embeddings.weight       position_embeddings    7 8
token_type_embeddings.weight     token_type_embeddings  3 8
LayerNorm.weight                 LayerNorm/gamma        8
LayerNorm.bias                   LayerNorm/beta         8
"""
LAYER = """
attention.self.query.weight        attention/self/query/kernel       8 8 *
attention.self.query.bias          attention/self/query/bias         8
attention.self.key.weight          attention/self/key/kernel         8 8 *
attention.self.key.bias            attention/self/key/bias           8
attention.self.value.weight        attention/self/value/kernel       8 8 *
attention.self.value.bias          attention/self/value/bias         8
attention.output.dense.weight      attention/output/dense/kernel     8 8 *
attention.output.dense.bias        attention/output/dense/bias       8
attention.output.LayerNorm.weight  attention/output/LayerNorm/gamma  8
attention.output.LayerNorm.bias    attention/output/LayerNorm/beta   8
intermediate.dense.weight          intermediate/dense/kernel         8 12 *
intermediate.dense.bias            intermediate/dense/bias           12
output.dense.weight                output/dense/kernel               12 8 *
output.dense.bias                  output/dense/bias                 8
output.LayerNorm.weight            output/LayerNorm/gamma            8
output.LayerNorm.bias              output/LayerNorm/beta             8
"""
POOLER = """
dense.weight  dense/kernel  8 8 *
dense.bias    dense/bias    8
"""
HEADS = """
predictions.bias                        predictions/output_bias  11
predictions.transform.dense.weight      predictions/transform/dense/kernel  8 8 *
predictions.transform.dense.bias        predictions/transform/dense/bias  8
predictions.transform.LayerNorm.weight  predictions/transform/LayerNorm/gamma  8
predictions.transform.LayerNorm.bias    predictions/transform/LayerNorm/beta  8
seq_relationship.weight                 seq_relationship/output_weights  2 8
seq_relationship.bias                   seq_relationship/output_bias  2
"""
TABLE = {
  ('bert.embeddings.', 'bert/embeddings/'): EMBEDDINGS,
  ('bert.encoder.layer.0.', 'bert/encoder/layer_0/'): LAYER,
  ('bert.pooler.', 'bert/pooler/'): POOLER,
  ('cls.', 'cls/'): HEADS,
}


def test_names_and_shapes_are_those_of_hugging_face_and_google():
  hf, google = {}, {}
  for prefixes, rows in TABLE.items():
    for theirs, googles, *shape in map(str.split, rows.split('\n')[1:-1]):
      sizes = tuple(int(n) for n in shape if n != '*')
      google[prefixes[1] + googles] = sizes
      hf[prefixes[0] + theirs] = sizes[::-1] if '*' in shape else sizes
  for side, expected in {'hf': hf, 'google': google}.items():
    tensors = rename.to_theirs(models.make_params(CONFIG), CONFIG, side)
    assert {name: x.shape for name, x in tensors.items()} == expected
    assert len(expected) == 30
