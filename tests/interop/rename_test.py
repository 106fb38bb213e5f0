"""Names and forms of others' BERT; no torch is needed."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.interop import rename
from tests import models


def test_kernels_are_turned_and_heads_are_joined():
  params = models.make_params()
  tensors = rename.to_theirs(params, models.CONFIG, 'hf')
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


@pytest.mark.parametrize('heads', [('mlm', 'pooler', 'nsp'), ('mlm',), ()])
def test_there_and_back_is_the_same_with_any_heads(heads):
  params = rename.keep_parts(models.make_params(), heads)
  assert rename.list_parts(params) == ['encoder', *heads]
  theirs = rename.to_theirs(params, models.CONFIG, 'hf')
  read, report = rename.from_hf(theirs, models.CONFIG)
  models.assert_same(read, params)
  assert report.left_over == []
  bare = {name.removeprefix('bert.'): x for name, x in theirs.items()}
  if 'mlm' not in heads:  # so BertModel saves it
    models.assert_same(rename.from_hf(bare, models.CONFIG)[0], params)
  theirs = rename.to_theirs(params, models.CONFIG, 'google')
  read, report = rename.to_ours(theirs, theirs.get, models.CONFIG, 'google')
  models.assert_same(read, params)
  missing = {'mlm': 5, 'pooler': 2, 'nsp': 2}
  assert len(report.missing) == sum(
    n for head, n in missing.items() if head not in heads
  )


def rename_and_drop(tensors):
  tensors['bert.pooler.weight'] = tensors.pop('bert.pooler.dense.weight')
  tensors['extra'] = tensors.pop('cls.predictions.bias')


def drop_pooler(tensors):
  for name in ('weight', 'bias'):
    del tensors[f'bert.pooler.dense.{name}']


def untie(tensors):
  name = 'cls.predictions.decoder.weight'
  tensors[name] = tensors['bert.embeddings.word_embeddings.weight'] + 1


def grow(tensors):
  tensors['cls.predictions.bias'] = np.ones(12, np.float32)


def quantize(tensors):
  tensors['cls.predictions.bias'] = np.arange(11)


def repeat(tensors):
  tensors['bert.embeddings.LayerNorm.gamma'] = np.ones(8, np.float32)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (
      rename_and_drop,
      'missing: bert.pooler.dense.weight, cls.predictions.bias; '
      'unexpected: bert.pooler.weight, extra',
    ),
    (drop_pooler, 'missing: bert.pooler.dense.bias'),  # which NSP needs
    (untie, 'tied'),
    (grow, r'\(12,\).*\(11,\)'),
    (quantize, 'cls.predictions.bias holds int64, not floating-point'),
    (repeat, 'some tensors are there twice'),
  ],
)
def test_tensors_that_are_not_a_bert_are_refused(change, message):
  tensors = rename.to_theirs(models.make_params(), models.CONFIG, 'hf')
  change(tensors)
  with pytest.raises(errors.UserError, match=message):
    rename.from_hf(tensors, models.CONFIG)


def test_old_names_tied_copies_and_buffers_are_understood():
  params = models.make_params(with_nsp=False)
  tensors = rename.to_theirs(params, models.CONFIG, 'hf')
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


def test_half_precision_is_read_as_float32_and_other_heads_are_left_over():
  tensors = rename.to_theirs(models.make_params(), models.CONFIG, 'hf')
  halves = {name: x.astype(np.float16) for name, x in tensors.items()}
  halves['classifier.weight'] = halves['bert.pooler.extra'] = np.ones(1)
  params, report = rename.from_hf(halves, models.CONFIG)
  assert params['pooler']['kernel'].dtype == np.float32
  assert report == ([], ['bert.pooler.extra', 'classifier.weight'])
