"""Tests of taking over a model's parameters; see also those of init_from."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import config, errors, param_names
from bert_jax.inference import transfer
from bert_jax.interop import rename
from tests import models


def make_source(params):
  return rename.LoadedModel(params, models.CONFIG, models.TOKENIZER)


def test_names_that_stay_new_are_not_taken_over():
  theirs, new = models.make_params(seed=1), models.make_params(seed=2)
  found, facts = transfer.transfer(
    make_source(theirs), 'PATH', new, 11, '^(encoder/layer_1|pooler)/'
  )
  theirs, new, found = map(param_names.flatten, (theirs, new, found))
  for name, x in found.items():
    fresh = name.startswith(('encoder/layer_1/', 'pooler/'))
    np.testing.assert_array_equal(x, (new if fresh else theirs)[name])
  assert facts['changes'] == [
    '14 parameters of ^(encoder/layer_1|pooler)/: new'
  ]


def test_a_head_that_the_source_lacks_stays_new_and_is_said():
  theirs, new = models.make_params(seed=1), models.make_params(seed=2)
  new['classifier'] = {'kernel': np.ones((8, 2), np.float32)}
  for part in ('mlm', 'nsp'):
    del new[part]
  del theirs['pooler']
  found, facts = transfer.transfer(make_source(theirs), 'PATH', new, 11)
  models.assert_same(found['classifier'], new['classifier'])
  models.assert_same(found['pooler'], new['pooler'])
  models.assert_same(found['encoder'], theirs['encoder'])
  assert facts['changes'] == [
    'mlm: left out',
    'pooler: new, the source has none',
    'nsp: left out',
    'classifier: new, the source has none',
  ]
  assert jax.tree.structure(found) == jax.tree.structure(new)


def test_another_width_and_a_missing_layer_are_refused():
  theirs, new = models.make_params(seed=1), models.make_params(seed=2)
  new['nsp']['kernel'] = np.zeros((6, 2), np.float32)
  with pytest.raises(
    ValueError, match=r'nsp/kernel has the shape \(8, 2\), not \(6, 2\)'
  ):
    transfer.transfer(make_source(theirs), 'PATH', new, 11)
  # The layers of new parameters are zeros then, see `parameters.skip_layers`.
  del theirs['encoder']['layer_1']['mlp_in']['kernel']
  with pytest.raises(ValueError, match='no encoder/layer_1/mlp_in/kernel'):
    transfer.transfer(make_source(theirs), 'PATH', new, 11)


@pytest.mark.parametrize(
  'given, typed, message',
  [
    # Of a file, sizes are its recipe's.
    ({'model.hidden_size': 64, 'data.vocab_size': 9}, (), ''),
    (
      {'model.hidden_size': 64},
      ('model.hidden_size',),
      'model.hidden_size=8, not',
    ),
    (
      {'model.activation': 'relu'},
      (),
      "has model.activation='gelu', not 'relu'",
    ),
    ({'model.activation': 'gelu'}, ('model.activation',), ''),
    (
      {},
      ('model.activation',),
      "activation='gelu', not 'gelu_tanh', which it keeps",
    ),
    ({'objective.kind': 'ltr'}, (), "objective.kind='mlm', not 'ltr'"),
    ({'data.lowercase': False}, (), 'data.lowercase=True, not False'),
    ({'model.dropout': 0.3, 'data.vocab': 'a'}, ('model.dropout',), ''),
    ({'data.strip_accents': 'as_lowercase'}, ('data.strip_accents',), ''),
    ({'data.strip_accents': 'false'}, (), "strip_accents='true', not 'false'"),
    ({'model.max_positions': 64}, (), 'resize_positions=True is for max_pos'),
  ],
)
def test_what_is_given_against_the_source_is_refused(given, typed, message):
  c = config.pretraining('tiny')
  c.init_from = 'PATH'
  c.update_from_flattened_dict(given)
  filled = c.copy_and_resolve_references()
  values = {'model.hidden_size': 8, 'model.activation': 'gelu'}
  values |= {'data.lowercase': True, 'data.strip_accents': 'true'}
  values |= {'objective.kind': 'mlm', 'model.max_positions': 512}
  filled.update_from_flattened_dict(
    {**values, 'data.vocab_size': 11, 'data.vocab': 'b'}
  )
  if not message:
    return transfer.check_given(c, filled, typed)
  with pytest.raises(errors.UserError, match=message):
    transfer.check_given(c, filled, typed)


def test_the_modern_bodys_head_starts_as_its_mlm_head():
  bert = dataclasses.replace(models.CONFIG, body='modern', norm='pre')
  theirs, new = (models.make_params(bert, False, seed) for seed in (1, 2))
  mlm = new.pop('mlm')
  new['head'] = {name: mlm[name] for name in ('transform', 'norm')}
  source = make_source(theirs)._replace(config=bert)
  found, facts = transfer.transfer(source, 'PATH', new, 11)
  models.assert_same(found['head']['norm'], theirs['mlm']['norm'])
  models.assert_same(found['head']['transform'], theirs['mlm']['transform'])
  assert facts['changes'] == [
    'mlm: left out',
    'head: starts as the MLM head before its decoder',
  ]
  # With layers that stay new, it stays so, too; a trained one goes on.
  found, _ = transfer.transfer(source, 'PATH', new, 11, '^head/')
  models.assert_same(found['head'], new['head'])
  trained = models.make_params(bert, False, seed=3)['mlm']
  theirs['head'] = {name: trained[name] for name in ('transform', 'norm')}
  found, facts = transfer.transfer(source, 'PATH', new, 11)
  models.assert_same(found['head'], theirs['head'])
  assert facts['changes'] == ['mlm: left out']
