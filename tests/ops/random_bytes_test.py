"""Tests of random bytes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import random_bytes
from bert_jax.parallel import row_keys


def test_bytes_of_a_word_go_to_the_quarters_of_the_rows():
  key = jax.random.key(3)
  found = np.asarray(random_bytes.draw(key, (3, 8, 5)))
  words = np.asarray(jax.random.bits(key, (3, 2, 5), jnp.uint32))
  for j in range(4):
    byte = words // 256**j % 256
    np.testing.assert_array_equal(found[:, 2 * j : 2 * j + 2], byte)


@pytest.mark.parametrize('shape', [(7,), (3, 6), (8, 6), (2, 6, 4)])
def test_shapes_that_have_no_quarters_get_their_bytes(shape):
  found = random_bytes.draw(jax.random.key(3), shape)
  assert found.shape == shape and found.dtype == jnp.uint8


@pytest.mark.parametrize('row', [(8, 5), (5,)])
def test_a_device_draws_its_rows_of_the_batch(row):
  def draw(first, rows):
    key = row_keys.for_rows(jax.random.key(3), first, 0)
    return random_bytes.draw(key, (rows, *row))

  np.testing.assert_array_equal(draw(4, 4), draw(0, 8)[4:])
