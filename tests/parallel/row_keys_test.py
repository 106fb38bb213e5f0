"""Tests of the random numbers of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.parallel import row_keys


def key_of(first, share=0, impl='threefry2x32'):
  return row_keys.for_rows(jax.random.key(7, impl=impl), first, share)


@pytest.mark.parametrize('dtype', [jnp.uint8, jnp.uint32])
def test_a_share_draws_its_rows_of_the_whole(dtype):
  whole = jax.random.bits(key_of(0), (6, 5, 3), dtype)
  share = jax.random.bits(key_of(4, share=2), (2, 5, 3), dtype)
  np.testing.assert_array_equal(share, whole[4:])
  assert whole.dtype == dtype


def test_the_share_survives_what_flax_does_with_keys():
  def derived(key):
    return jax.random.split(jax.random.fold_in(key, 3), 2)[1]

  whole = jax.random.bits(derived(key_of(0)), (6, 5))
  share = jax.random.bits(derived(key_of(4)), (2, 5))
  np.testing.assert_array_equal(share, whole[4:])
  other = jax.random.bits(jax.random.fold_in(key_of(4), 3), (2, 5))
  assert not np.any(np.asarray(other) == share)


def test_no_two_numbers_share_their_bits():
  bits = np.asarray(jax.random.bits(key_of(0), (64, 8, 4)))
  # Of 2048 draws from 2**32, two are equal in one of 2000 keys.
  assert len(np.unique(bits)) == bits.size
  # 16 of the 32 bits on average: 65536 coins, standard deviation 0.002.
  ones = np.unpackbits(bits.view(np.uint8)).mean()
  assert abs(ones - 0.5) < 0.01


def test_rows_in_parts_have_numbers_of_their_own():
  def draw(first, rows):
    return jax.random.bits(row_keys.for_parts(key_of(first), 4), (4 * rows, 5))

  whole, share = draw(0, 6), draw(4, 2)
  np.testing.assert_array_equal(share, whole[16:])
  a, b = (jax.random.key_data(key_of(0, i, 'rbg')) for i in (0, 1))
  assert np.any(a != b)  # of other generators
  other = jax.random.key(7)
  assert row_keys.for_parts(other, 4) is other
