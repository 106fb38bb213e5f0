"""Tests of the bits that kernels of NVIDIA GPUs drop weights by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import kept_bits
from tests import lowering


@pytest.mark.parametrize(
  'counter, key, found',
  [
    ('0 0 0 0', '0 0', '6627e8d5 e169c58d bc57ac4c 9b00dbd8'),
    (
      'ffffffff ffffffff ffffffff ffffffff',
      'ffffffff ffffffff',
      '408f276d 41c83b0e a20bc7c6 6d5451fd',
    ),
    (
      '243f6a88 85a308d3 13198a2e 03707344',
      'a4093822 299f31d0',
      'd16cfe09 94fdcceb 5001e420 24126ea1',
    ),
  ],
)
def test_philox_gives_the_authors_known_answers(counter, key, found):
  counter, key, found = (
    [jnp.uint32(int(x, 16)) for x in text.split()]
    for text in (counter, key, found)
  )
  assert list(jax.jit(kept_bits.philox)(counter, key)) == found


@pytest.mark.parametrize('keep', [1, 128, 230])
def test_every_byte_is_compared_whatever_the_others_are(keep):
  bytes_ = np.arange(256, dtype=np.uint32)
  for place in range(0, 32, 8):
    for others in (0, 0xFFFFFFFF, 0x5A5A5A5A):
      words = bytes_ << place | others & ~np.uint32(255 << place)
      found = kept_bits._compare(jnp.asarray(words), keep)
      flags = np.asarray(found) >> (place + 7) & 1
      np.testing.assert_array_equal(flags, bytes_ >= keep)


@pytest.mark.parametrize('impl', ['rbg', 'threefry2x32'])
def test_bits_are_independent_and_as_often_set_as_they_should(impl):
  key = jax.random.key(1, impl=impl)
  words = np.asarray(kept_bits.draw(key, (3, 1000, 64), 200))
  flags = np.stack([words.ravel() >> j & 1 for j in range(32)]) == 1
  deviations = np.sqrt(flags.shape[1])
  share = 200 / 256
  near = 5 * np.sqrt(share * (1 - share))
  assert (np.abs(flags.mean(1) - share) * deviations < near).all()
  related = np.corrcoef([*flags, *np.roll(flags, 1, 1)])
  related -= np.eye(64)
  assert (np.abs(related) * deviations < 5).all()


def test_the_kernel_draws_each_number_at_its_place():
  """In two blocks; runs on GPUs depend on these bits."""
  key, shape = jax.random.key(1, impl='rbg'), (16, 128)
  data, place = jax.random.key_data(key), jnp.arange(2048, dtype='uint32')
  expected = kept_bits._draw(230, place, data).reshape(shape)
  np.testing.assert_array_equal(kept_bits.draw(key, shape, 230), expected)
  text = lowering.lower_for_gpus(lambda: kept_bits.draw(key, shape, 230))
  assert 'draw_kept_bits' in text
