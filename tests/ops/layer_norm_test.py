"""Tests of LayerNorm and of its gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import layer_norm

EPSILON = 1e-12


def values(dtype='float32'):
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(0.5, 2, (2, 3, 64)), dtype)
  scale, bias, weights = (
    jnp.asarray(rng.normal(1, 0.5, shape), 'float32')
    for shape in (64, 64, (2, 3, 64))
  )
  return x, scale, bias, weights


def ours(x, scale, bias):
  return layer_norm.normalise(x, scale, bias, EPSILON, str(x.dtype))


def flax(x, scale, bias):
  module = nn.LayerNorm(epsilon=EPSILON, dtype=x.dtype)
  return module.apply({'params': {'scale': scale, 'bias': bias}}, x)


def gradients(function, x, scale, bias, weights):
  def loss(x, scale, bias):
    return (function(x, scale, bias).astype('float32') * weights).sum()

  return jax.grad(loss, argnums=(0, 1, 2))(x, scale, bias)


def test_layer_norm_is_that_of_flax():
  x, scale, bias, _ = values()
  np.testing.assert_allclose(ours(x, scale, bias), flax(x, scale, bias))
  module = layer_norm.LayerNorm(EPSILON, 'float32')
  params = module.init(jax.random.key(0), x)['params']
  assert jax.tree.map(jnp.shape, params) == {'scale': (64,), 'bias': (64,)}
  np.testing.assert_allclose(
    module.apply({'params': params}, x), flax(x, 1 + 0 * scale, 0 * bias)
  )


def test_gradients_of_layer_norm_are_those_of_flax():
  found, expected = (gradients(f, *values()) for f in (ours, flax))
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_gradient_of_bfloat16_is_rounded_once():
  x, scale, bias, weights = values('bfloat16')
  weights = weights.astype('bfloat16').astype('float32')
  found = gradients(ours, x, scale, bias, weights)[0]
  exact = gradients(ours, x.astype('float32'), scale, bias, weights)[0]
  assert found.dtype == 'bfloat16'
  np.testing.assert_array_equal(found, exact.astype('bfloat16'))


@pytest.mark.parametrize('constant', [0.0, 5.0])
def test_a_row_of_equal_values_is_finite(constant):
  x = jnp.full((1, 64), constant)
  found = layer_norm.normalise(x, jnp.ones(64), jnp.zeros(64), EPSILON, 'f4')
  np.testing.assert_array_equal(found, jnp.zeros((1, 64)))
