"""Tests of dropout and of its random bytes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import dropout
from bert_jax.parallel import row_keys


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


def test_bytes_of_a_word_go_to_the_quarters_of_the_rows():
  key = jax.random.key(3)
  found = np.asarray(dropout.draw(key, (3, 8, 5)))
  words = np.asarray(jax.random.bits(key, (3, 2, 5), jnp.uint32))
  for j in range(4):
    byte = words // 256**j % 256
    np.testing.assert_array_equal(found[:, 2 * j : 2 * j + 2], byte)


@pytest.mark.parametrize('shape', [(7,), (3, 6), (8, 6), (2, 6, 4)])
def test_shapes_that_have_no_quarters_get_their_bytes(shape):
  found = dropout.draw(jax.random.key(3), shape)
  assert found.shape == shape and found.dtype == jnp.uint8


@pytest.mark.parametrize(
  'platform, shape, drawn',
  [
    ('cuda', (3, 8), '3x2xui32'),
    ('cuda', (3, 5), '3x5xui8'),
    ('tpu', (3, 8), '3x8xui8'),
    ('cpu', (3, 8), '3x8xui8'),
  ],
)
def test_rbg_draws_words_for_gpus_only(platform, shape, drawn):
  """For a byte, XLA would draw a word there; elsewhere bits stay as they are."""
  traced = jax.jit(lambda key: dropout.draw(key, shape)).trace(
    jax.random.key(3, impl='rbg')
  )
  text = traced.lower(lowering_platforms=(platform,)).as_text()
  (line,) = (x for x in text.splitlines() if 'rng_bit_generator' in x)
  assert line.endswith(f'tensor<{drawn}>)')


@pytest.mark.parametrize('row', [(8, 5), (5,)])
def test_a_device_draws_its_rows_of_the_batch(row):
  def draw(first, rows):
    key = row_keys.for_rows(jax.random.key(3), first, 0)
    return dropout.draw(key, (rows, *row))

  np.testing.assert_array_equal(draw(4, 4), draw(0, 8)[4:])
