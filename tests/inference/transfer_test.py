"""Tests of taking over a model's parameters; see also those of init_from."""

import jax
import numpy as np
import pytest

from bert_jax import param_names
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
