"""Tests of dropout."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.ops import dropout


def test_what_has_a_large_byte_is_dropped_and_the_rest_scaled():
  values = jnp.array([0, 191, 192, 255], jnp.uint8)
  found = dropout.drop(jnp.array([1.0, 2, 3, 4]), values, 0.25)
  np.testing.assert_allclose(found, [4 / 3, 8 / 3, 0, 0], rtol=1e-6)


def test_the_factor_is_not_rounded_to_bfloat16():
  """3 * 256 / 230 is 3.339; with the factor rounded it were 3.328."""
  three = jnp.full(1, 3, 'bfloat16')
  values = jnp.zeros(1, jnp.uint8)
  found = dropout.drop(three, values, 0.1)
  assert found.dtype == 'bfloat16' and found == 3.34375
  slope = jax.grad(lambda x: dropout.drop(x, values, 0.1).sum())(three)
  assert slope == jnp.bfloat16(256 / 230)
