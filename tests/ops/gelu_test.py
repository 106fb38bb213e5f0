"""Tests of GELU."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.ops import gelu

X = jnp.array([-9.0, -3.0, -1.0, -0.1, 0.0, 0.1, 0.7, 1.0, 3.0, 9.0])


def slopes(function, x):
  return jax.grad(lambda x: function(x).astype('float32').sum())(x)


def test_values_that_a_reader_can_check():
  found = gelu.gelu_tanh(jnp.array([-30.0, 0.0, 1.0, 30.0]))
  np.testing.assert_allclose(found, [0, 0, 0.841192, 30], atol=1e-6)


def test_it_is_flax_gelu_and_so_is_its_gradient():
  np.testing.assert_allclose(
    gelu.gelu_tanh(X), nn.gelu(X, approximate=True), rtol=1e-6, atol=4e-7
  )
  np.testing.assert_allclose(
    slopes(gelu.gelu_tanh, X), slopes(nn.gelu, X), rtol=1e-5, atol=1e-6
  )


def test_bfloat16_is_rounded_once():
  """flax's constants would be rounded, too: 0.797 for sqrt(2 / pi)."""
  small = X.astype('bfloat16')
  wide = small.astype('float32')
  np.testing.assert_array_equal(
    gelu.gelu_tanh(small), gelu.gelu_tanh(wide).astype('bfloat16')
  )
  np.testing.assert_array_equal(
    slopes(gelu.gelu_tanh, small),
    slopes(gelu.gelu_tanh, wide).astype('bfloat16'),
  )
