"""Tests of the parameters that fine-tuning starts from."""

import re

import numpy as np
import pytest

from bert_jax import errors, param_names
from bert_jax.finetuning import starting
from tests import models
from tests.finetuning import made


def make_config(**changes):
  c = made.make_config('', '', **changes)
  c.model.num_layers = 12
  return c


def test_the_top_layers_and_the_pooler_start_anew():
  assert starting.list_new_layers(make_config()) == ''
  found = starting.list_new_layers(
    make_config(**{'finetuning.reinit_layers': 2})
  )
  names = [f'encoder/layer_{i}/mlp_in/kernel' for i in range(12)]
  names += ['pooler/kernel', 'classifier/kernel', 'embeddings/word/embedding']
  assert [name for name in names if re.search(found, name)] == [
    'encoder/layer_10/mlp_in/kernel',
    'encoder/layer_11/mlp_in/kernel',
    'pooler/kernel',
  ]


def test_more_layers_than_there_are_are_refused():
  c = make_config(**{'finetuning.reinit_layers': 13})
  with pytest.raises(errors.UserError, match='=13 is more than the 12 layers'):
    starting.list_new_layers(c)


def test_a_model_is_taken_over_except_for_its_heads(tmp_path):
  path = made.write_source(tmp_path / 'source')
  c = make_config(init_from=path, **{'data.vocab_size': 11})
  c.model.num_layers = 2
  new = models.make_params(made.BERT, seed=3)
  new = {name: new[name] for name in ('embeddings', 'encoder', 'pooler')}
  new['classifier'] = {'bias': np.ones(2, np.float32)}
  found, facts = starting.make_start(c, ('a', 'b'))(new)
  theirs = param_names.flatten(models.make_params(made.BERT))
  for name, x in param_names.flatten(found).items():
    expected = 1 if name == 'classifier/bias' else theirs[name]
    np.testing.assert_array_equal(x, np.broadcast_to(expected, x.shape))
  assert facts['path'] == path


def test_random_weights_have_no_source():
  assert starting.make_start(make_config(), ('a', 'b')) is None
