"""The names and shapes of one table, in three vocabularies."""

import dataclasses

from bert_jax.interop import rename
from tests import models

CONFIG = dataclasses.replace(models.CONFIG, num_layers=1)


def test_names_are_those_of_hugging_face():
  tensors = rename.to_theirs(models.make_params(CONFIG), CONFIG, 'hf')
  layer = 'bert.encoder.layer.0.'
  assert {name: tensor.shape for name, tensor in tensors.items()} == {
    'bert.embeddings.word_embeddings.weight': (11, 8),
    'bert.embeddings.position_embeddings.weight': (7, 8),
    'bert.embeddings.token_type_embeddings.weight': (3, 8),
    'bert.embeddings.LayerNorm.weight': (8,),
    'bert.embeddings.LayerNorm.bias': (8,),
    layer + 'attention.self.query.weight': (8, 8),
    layer + 'attention.self.query.bias': (8,),
    layer + 'attention.self.key.weight': (8, 8),
    layer + 'attention.self.key.bias': (8,),
    layer + 'attention.self.value.weight': (8, 8),
    layer + 'attention.self.value.bias': (8,),
    layer + 'attention.output.dense.weight': (8, 8),
    layer + 'attention.output.dense.bias': (8,),
    layer + 'attention.output.LayerNorm.weight': (8,),
    layer + 'attention.output.LayerNorm.bias': (8,),
    layer + 'intermediate.dense.weight': (12, 8),
    layer + 'intermediate.dense.bias': (12,),
    layer + 'output.dense.weight': (8, 12),
    layer + 'output.dense.bias': (8,),
    layer + 'output.LayerNorm.weight': (8,),
    layer + 'output.LayerNorm.bias': (8,),
    'bert.pooler.dense.weight': (8, 8),
    'bert.pooler.dense.bias': (8,),
    'cls.predictions.bias': (11,),
    'cls.predictions.transform.dense.weight': (8, 8),
    'cls.predictions.transform.dense.bias': (8,),
    'cls.predictions.transform.LayerNorm.weight': (8,),
    'cls.predictions.transform.LayerNorm.bias': (8,),
    'cls.seq_relationship.weight': (2, 8),
    'cls.seq_relationship.bias': (2,),
  }


def test_names_are_those_of_google():
  tensors = rename.to_theirs(models.make_params(CONFIG), CONFIG, 'google')
  layer = 'bert/encoder/layer_0/'
  assert {name: tensor.shape for name, tensor in tensors.items()} == {
    'bert/embeddings/word_embeddings': (11, 8),
    'bert/embeddings/position_embeddings': (7, 8),
    'bert/embeddings/token_type_embeddings': (3, 8),
    'bert/embeddings/LayerNorm/gamma': (8,),
    'bert/embeddings/LayerNorm/beta': (8,),
    layer + 'attention/self/query/kernel': (8, 8),
    layer + 'attention/self/query/bias': (8,),
    layer + 'attention/self/key/kernel': (8, 8),
    layer + 'attention/self/key/bias': (8,),
    layer + 'attention/self/value/kernel': (8, 8),
    layer + 'attention/self/value/bias': (8,),
    layer + 'attention/output/dense/kernel': (8, 8),
    layer + 'attention/output/dense/bias': (8,),
    layer + 'attention/output/LayerNorm/gamma': (8,),
    layer + 'attention/output/LayerNorm/beta': (8,),
    layer + 'intermediate/dense/kernel': (8, 12),
    layer + 'intermediate/dense/bias': (12,),
    layer + 'output/dense/kernel': (12, 8),
    layer + 'output/dense/bias': (8,),
    layer + 'output/LayerNorm/gamma': (8,),
    layer + 'output/LayerNorm/beta': (8,),
    'bert/pooler/dense/kernel': (8, 8),
    'bert/pooler/dense/bias': (8,),
    'cls/predictions/output_bias': (11,),
    'cls/predictions/transform/dense/kernel': (8, 8),
    'cls/predictions/transform/dense/bias': (8,),
    'cls/predictions/transform/LayerNorm/gamma': (8,),
    'cls/predictions/transform/LayerNorm/beta': (8,),
    'cls/seq_relationship/output_weights': (2, 8),
    'cls/seq_relationship/output_bias': (2,),
  }
