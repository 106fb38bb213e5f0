"""Names and forms of others' BERT; no torch is needed."""

import dataclasses

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.interop import rename
from tests import models


def test_kernels_are_turned_and_heads_are_joined():
  params = models.make_params()
  tensors = rename.to_hf(params, models.CONFIG)
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


def test_qkv_is_split_into_three_and_joined_again():
  kernel = np.arange(5 * 3 * 2 * 4).reshape(5, 3, 2, 4)  # [D, 3, H, K]
  query, key, value = rename.split_qkv(kernel)
  assert query.shape == (5, 8)
  assert query[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
  assert key[0].tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
  assert value[1, 0] == kernel[1, 2, 0, 0]
  back = rename.join_qkv(np.stack([query, key, value]), head_size=4)
  np.testing.assert_array_equal(back, kernel)
  bias = kernel[0]  # [3, H, K]
  np.testing.assert_array_equal(rename.split_qkv(bias)[1], key[0])
  back = rename.join_qkv(rename.split_qkv(bias), head_size=4)
  np.testing.assert_array_equal(back, bias)


def test_heads_are_merged_and_split_again():
  kernel = np.arange(2 * 4 * 5).reshape(2, 4, 5)  # [H, K, D]
  merged = rename.merge_heads(kernel)
  assert merged[:, 0].tolist() == [0, 5, 10, 15, 20, 25, 30, 35]
  np.testing.assert_array_equal(rename.split_heads(merged, 4), kernel)


def test_google_keeps_kernels_as_they_are_but_that_of_nsp():
  params = models.make_params()
  tensors = rename.to_google(params, models.CONFIG)
  ours = params['encoder']['layer_1']
  qkv, out = ours['attention']['qkv'], ours['attention']['out']
  theirs = 'bert/encoder/layer_1/'
  for j, part in enumerate(('query', 'key', 'value')):
    name = f'{theirs}attention/self/{part}/'
    assert tensors[name + 'kernel'][5, 6] == qkv['kernel'][5, j, 1, 2]
    assert tensors[name + 'bias'][6] == qkv['bias'][j, 1, 2]
  kernel = tensors[theirs + 'attention/output/dense/kernel']
  assert kernel[6, 3] == out['kernel'][1, 2, 3]
  kernel = tensors[theirs + 'intermediate/dense/kernel']
  assert kernel[3, 10] == ours['mlp_in']['kernel'][3, 10]
  gamma = tensors[theirs + 'output/LayerNorm/gamma']
  assert gamma[3] == ours['mlp_norm']['scale'][3]
  weights = tensors['cls/seq_relationship/output_weights']
  assert weights[1, 2] == params['nsp']['kernel'][2, 1]
  assert all(x.flags.c_contiguous for x in tensors.values())


@pytest.mark.parametrize(
  'heads',
  [
    ('mlm', 'pooler', 'nsp'),
    ('mlm', 'pooler'),
    ('mlm',),
    ('pooler',),
    (),
  ],
)
def test_there_and_back_is_the_same_with_any_heads(heads):
  params = rename.keep_parts(models.make_params(), heads)
  assert rename.list_parts(params) == ['encoder', *heads]
  theirs = rename.to_hf(params, models.CONFIG)
  read, report = rename.from_hf(theirs, models.CONFIG)
  models.assert_same(read, params)
  assert report.left_over == []
  bare = {name.removeprefix('bert.'): x for name, x in theirs.items()}
  if 'mlm' not in heads:  # so BertModel saves it
    models.assert_same(rename.from_hf(bare, models.CONFIG)[0], params)
  theirs = rename.to_google(params, models.CONFIG)
  read, report = rename.from_google(theirs, theirs.get, models.CONFIG)
  models.assert_same(read, params)
  missing = {'mlm': 5, 'pooler': 2, 'nsp': 2}
  assert len(report.missing) == sum(
    n for head, n in missing.items() if head not in heads
  )


def test_parameters_of_another_model_are_a_bug():
  with pytest.raises(ValueError, match='classifier/kernel'):
    rename.to_hf(
      models.make_params() | {'classifier': {'kernel': np.ones(2)}},
      models.CONFIG,
    )
  other = dataclasses.replace(models.CONFIG, mlp_size=16)
  with pytest.raises(ValueError, match='expected'):
    rename.to_google(models.make_params(), other)


def test_missing_and_unexpected_names_are_both_listed():
  tensors = rename.to_hf(models.make_params(), models.CONFIG)
  tensors['bert.pooler.weight'] = tensors.pop('bert.pooler.dense.weight')
  tensors['extra'] = tensors.pop('cls.predictions.bias')
  with pytest.raises(
    errors.UserError,
    match='missing: bert.pooler.dense.weight, cls.predictions.bias; '
    'unexpected: bert.pooler.weight, extra',
  ):
    rename.from_hf(tensors, models.CONFIG)


def test_other_heads_are_left_over():
  tensors = rename.to_hf(models.make_params(), models.CONFIG)
  tensors['classifier.weight'] = np.ones(1)
  tensors['bert.pooler.extra'] = np.ones(1)
  report = rename.from_hf(tensors, models.CONFIG)[1]
  assert report == ([], ['bert.pooler.extra', 'classifier.weight'])


def test_an_nsp_head_needs_its_pooler():
  tensors = rename.to_hf(models.make_params(), models.CONFIG)
  for name in ('weight', 'bias'):
    del tensors[f'bert.pooler.dense.{name}']
  with pytest.raises(errors.UserError, match='missing: bert.pooler.dense.bias'):
    rename.from_hf(tensors, models.CONFIG)


def test_old_names_tied_copies_and_buffers_are_understood():
  params = models.make_params(with_nsp=False)
  tensors = rename.to_hf(params, models.CONFIG)
  norm = 'bert.embeddings.LayerNorm.'
  tensors[norm + 'gamma'] = tensors.pop(norm + 'weight')
  tensors[norm + 'beta'] = tensors.pop(norm + 'bias')
  word = tensors['bert.embeddings.word_embeddings.weight']
  tensors |= {
    'bert.embeddings.position_ids': np.arange(7)[None],
    'cls.predictions.decoder.bias': tensors['cls.predictions.bias'],
    'cls.predictions.decoder.weight': word.copy(),
  }
  read, report = rename.from_hf(tensors, models.CONFIG)
  models.assert_same(read, params)
  assert report.left_over == []
  # Some files hold the copies alone.
  alone = {k: x for k, x in tensors.items() if k != 'cls.predictions.bias'}
  models.assert_same(rename.from_hf(alone, models.CONFIG)[0], params)
  tensors['cls.predictions.decoder.weight'][0, 0] += 1
  with pytest.raises(errors.UserError, match='tied'):
    rename.from_hf(tensors, models.CONFIG)


def test_half_precision_is_read_as_float32():
  tensors = rename.to_hf(models.make_params(), models.CONFIG)
  halves = {name: x.astype(np.float16) for name, x in tensors.items()}
  kernel = rename.from_hf(halves, models.CONFIG)[0]['pooler']['kernel']
  assert kernel.dtype == np.float32


def test_weights_of_another_shape_are_refused():
  tensors = rename.to_hf(models.make_params(), models.CONFIG)
  other = dataclasses.replace(models.CONFIG, vocab_size=12)
  with pytest.raises(errors.UserError, match=r'\(11, 8\).*\(12, 8\)'):
    rename.from_hf(tensors, other)


@pytest.mark.parametrize('turned_round', [False, True])
def test_a_name_in_its_old_and_its_new_form_is_refused(turned_round):
  tensors = rename.to_hf(models.make_params(), models.CONFIG)
  old = {'bert.embeddings.LayerNorm.gamma': np.ones(8, np.float32)}
  both = old | tensors if turned_round else tensors | old
  with pytest.raises(errors.UserError, match='LayerNorm.weight is there twice'):
    rename.from_hf(both, models.CONFIG)
