"""Tests of the model that is trained on frozen features."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import param_names
from bert_jax.model import feature_model
from tests import models

X = jnp.arange(24.0).reshape(1, 2, 3, 4)  # [B, S, K, D]


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
  assert feature_model.list_layers(features, 12) == expected


def test_layers_are_weighted_or_concatenated():
  mix = feature_model.Mix('concat_last_4')
  assert mix.apply({}, X)[0, 1].tolist() == list(range(12, 24))
  mix = feature_model.Mix('weighted_sum_last_4')
  new = mix.init(jax.random.key(0), X)
  # At first, the mean of 0, 4 and 8.
  np.testing.assert_allclose(mix.apply(new, X)[0, 0, 0], 4, rtol=1e-6)
  params = {
    'weights': jnp.log(jnp.array([1.0, 2.0, 5.0])),
    'scale': jnp.array([2.0]),
  }
  found = mix.apply({'params': params}, X)[0, 0]
  # 2 (0 + 2 * 4 + 5 * 8) / 8 = 12
  np.testing.assert_allclose(found, [12, 14, 16, 18], rtol=1e-6)


def make_module(tokens):
  return feature_model.FeatureModel(
    models.CONFIG, 5, 0.5, 6, 'weighted_sum_last_4', (3, 4), tokens
  )


@pytest.mark.parametrize(
  'tokens, shape',
  [(True, (1, 2, 5)), pytest.param(False, (1, 5), marks=pytest.mark.slow)],
)
def test_logits_ignore_padding(tokens, shape):
  module = make_module(tokens)
  init = functools.partial(feature_model.init, module)
  params = {'params': jax.jit(init)(jax.random.key(0))}
  batch = {'features': X / 24, 'input_mask': jnp.ones((1, 2), jnp.int32)}
  found = jax.jit(module.apply)(params, batch)
  assert found.shape == shape
  longer = {
    'features': jnp.pad(
      X / 24, ((0, 0), (0, 2), (0, 0), (0, 0)), constant_values=7.0
    ),
    'input_mask': jnp.pad(batch['input_mask'], ((0, 0), (0, 2))),
  }
  other = jax.jit(module.apply)(params, longer)
  np.testing.assert_allclose(
    other[:, :2] if tokens else other, found, atol=1e-6
  )


def test_no_parameter_of_the_frozen_model_is_among_those_trained():
  params = feature_model.init(make_module(True), jax.random.key(0))
  assert set(params) == {'mix', 'bilstm', 'classifier'}
  assert param_names.flatten(params)['classifier/kernel'].shape == (12, 5)
