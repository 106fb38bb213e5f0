"""Names and shapes of bert_jax.interop.table; no torch is needed."""

import dataclasses

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.interop import table
from tests import models


def test_names_are_those_of_hugging_face():
  config = dataclasses.replace(models.CONFIG, num_layers=1)
  tensors = table.to_hf(models.make_params(config), config, True)
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


def test_kernels_are_turned_and_heads_are_joined():
  params = models.make_params()
  tensors = table.to_hf(params, models.CONFIG, True)
  ours = params['encoder']['layer_1']
  qkv, out = ours['attention']['qkv'], ours['attention']['out']
  theirs = 'bert.encoder.layer.1.'
  # Output 6 is head 1, place 2: heads have 4 places.
  for j, part in enumerate(('query', 'key', 'value')):
    name = f'{theirs}attention.self.{part}.'
    assert tensors[name + 'weight'][6, 5] == qkv['kernel'][5, j, 1, 2]
    assert tensors[name + 'bias'][6] == qkv['bias'][j, 1, 2]
  weight = tensors[theirs + 'attention.output.dense.weight']
  assert weight[3, 6] == out['kernel'][1, 2, 3]
  weight = tensors[theirs + 'intermediate.dense.weight']
  assert weight[10, 3] == ours['mlp_in']['kernel'][3, 10]
  weight = tensors['cls.predictions.transform.dense.weight']
  assert weight[1, 2] == params['mlm']['transform']['kernel'][2, 1]
  weight = tensors['cls.seq_relationship.weight']
  assert weight[1, 2] == params['nsp']['kernel'][2, 1]
  weight = tensors['bert.embeddings.word_embeddings.weight']
  assert weight[9, 3] == params['embeddings']['word']['embedding'][9, 3]


def test_parameters_of_another_model_are_a_bug():
  with pytest.raises(ValueError, match='nsp/kernel'):
    table.to_hf(models.make_params(), models.CONFIG, False)
  other = dataclasses.replace(models.CONFIG, mlp_size=16)
  with pytest.raises(ValueError, match='expected'):
    table.to_hf(models.make_params(), other, True)


def test_missing_and_unexpected_names_are_both_listed():
  tensors = table.to_hf(models.make_params(), models.CONFIG, True)
  tensors['bert.pooler.weight'] = tensors.pop('bert.pooler.dense.weight')
  tensors['extra'] = tensors.pop('cls.predictions.bias')
  with pytest.raises(
    errors.UserError,
    match='missing: bert.pooler.dense.weight, cls.predictions.bias; '
    'unexpected: bert.pooler.weight, extra',
  ):
    table.from_hf(tensors, models.CONFIG, True)
  tensors = table.to_hf(models.make_params(), models.CONFIG, True) | {
    'extra': np.ones(1)
  }
  with pytest.raises(errors.UserError, match='none; unexpected: extra'):
    table.from_hf(tensors, models.CONFIG, True)


def test_old_names_tied_copies_and_buffers_are_understood():
  params = models.make_params(with_nsp=False)
  tensors = table.to_hf(params, models.CONFIG, False)
  norm = 'bert.embeddings.LayerNorm.'
  tensors[norm + 'gamma'] = tensors.pop(norm + 'weight')
  tensors[norm + 'beta'] = tensors.pop(norm + 'bias')
  word = tensors['bert.embeddings.word_embeddings.weight']
  tensors |= {
    'bert.embeddings.position_ids': np.arange(7)[None],
    'bert.pooler.dense.weight': np.ones((8, 8), np.float32),
    'bert.pooler.dense.bias': np.ones(8, np.float32),
    'cls.predictions.decoder.bias': tensors['cls.predictions.bias'],
    'cls.predictions.decoder.weight': word.copy(),
  }
  models.assert_same(table.from_hf(tensors, models.CONFIG, False), params)
  tensors['cls.predictions.decoder.weight'][0, 0] += 1
  with pytest.raises(errors.UserError, match='tied'):
    table.from_hf(tensors, models.CONFIG, False)


def test_half_precision_is_read_as_float32():
  tensors = table.to_hf(models.make_params(), models.CONFIG, True)
  halves = {name: x.astype(np.float16) for name, x in tensors.items()}
  kernel = table.from_hf(halves, models.CONFIG, True)['pooler']['kernel']
  assert kernel.dtype == np.float32


def test_weights_of_another_shape_are_refused():
  tensors = table.to_hf(models.make_params(), models.CONFIG, True)
  other = dataclasses.replace(models.CONFIG, vocab_size=12)
  with pytest.raises(errors.UserError, match=r'\(11, 8\).*\(12, 8\)'):
    table.from_hf(tensors, other, True)
