"""Tests of the model that is trained on a frozen model's hidden states."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.inference import hidden_states
from bert_jax.model import classifier, parameters
from tests import models

C = dataclasses.replace(models.CONFIG, type_vocab_size=2)
TEXT = 'the dog cats'  # [CLS] the dog cat ##s [SEP]
IDS = models.TOKENIZER.encode(TEXT)['input_ids']
BATCH = {
  'input_ids': np.array([IDS, IDS]),
  'input_mask': np.array([[1] * 6, [1] * 4 + [0] * 2]),
  'segment_ids': np.zeros((2, 6), int),
  'label_weights': np.array([[0, 1, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0.0]]),
}


def make(features='last', two=False, tokens=False, config=C):
  """Returns a module and its parameters; those of a model are `make_params`."""
  how = config, 5, 0.5, 6, tokens, features, two
  module = classifier.FeatureClassifier(*how)
  params = parameters.init(module, jax.random.key(0))
  for seed, part in enumerate((params, params.get('beside', {}))):
    params_of = models.make_params(config, False, seed=seed)
    part |= {x: params_of[x] for x in ('embeddings', 'encoder') if part}
  return module, params


def read(module, params):
  apply = functools.partial(module.apply, method='read')
  return jax.jit(apply)({'params': params}, BATCH)


@pytest.mark.parametrize(
  'features, expected',
  [
    ('embeddings', (0,)),
    ('second_to_last', (11,)),
    ('last', (12,)),
    ('weighted_sum_last_4', (9, 10, 11, 12)),
    ('concat_last_4', (9, 10, 11, 12)),
    ('weighted_sum_all', tuple(range(1, 13))),
  ],
)
def test_the_layers_of_table_7(features, expected):
  layers = tuple(range(13))[classifier.LAYERS[features]]
  assert layers == expected


def test_features_are_the_models_hidden_states():
  config = dataclasses.replace(C, num_layers=4)
  module, params = make('concat_last_4', config=config)
  [found] = hidden_states.extract(
    params, config, models.TOKENIZER, [TEXT], layers='concat_last_4'
  )
  np.testing.assert_allclose(read(module, params)[0], found.hidden, atol=1e-5)


def test_layers_are_weighted():
  x = jnp.arange(24.0).reshape(1, 2, 3, 4)  # [B, S, K, D]
  mix = classifier.Mix()
  new = mix.init(jax.random.key(0), x)
  # At first, the mean of 0, 4 and 8.
  np.testing.assert_allclose(mix.apply(new, x)[0, 0, 0], 4, rtol=1e-6)
  params = {
    'weights': jnp.log(jnp.array([1.0, 2.0, 5.0])),
    'scale': jnp.array([2.0]),
  }
  found = mix.apply({'params': params}, x)[0, 0]
  # 2 (0 + 2 * 4 + 5 * 8) / 8 = 12
  np.testing.assert_allclose(found, [12, 14, 16, 18], rtol=1e-6)


def test_words_are_read_at_their_first_pieces_alone():
  module, params = make(tokens=True)
  found = jax.jit(module.apply)({'params': params}, BATCH)
  assert found.shape == (2, 6, 5)
  x = read(module, params)

  def head(module, words):
    mask = jnp.ones(words.shape[:2], jnp.int32)
    return module.classify(module.bilstm(words, mask), True)

  for row, places in enumerate(([1, 2, 3], [1, 2])):
    words = x[row : row + 1, np.array(places)]
    alone = module.apply({'params': params}, words, method=head)
    np.testing.assert_allclose(found[row, places], alone[0], atol=1e-6)


def test_only_what_reads_the_features_has_a_gradient():
  module, params = make('weighted_sum_all')

  def loss(params):
    return jnp.sum(jnp.sin(module.apply({'params': params}, BATCH)))

  moved = {
    name: any(jnp.any(x != 0) for x in jax.tree.leaves(grads))
    for name, grads in jax.jit(jax.grad(loss))(params).items()
  }
  frozen = {'embeddings': False, 'encoder': False}
  assert moved == frozen | dict.fromkeys(('mix', 'bilstm', 'classifier'), True)
