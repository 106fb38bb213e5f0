"""Random keys whose numbers depend on the row of the global batch.

A device with rows 8 to 15 draws the numbers that rows 8 to 15 would have if it
drew them for the whole batch.
"""

import functools

import jax
import jax.extend.random
import jax.numpy as jnp

from bert_jax.ops import dropout

_THREEFRY = 'threefry2x32'


def for_rows(key: jax.Array, first: jax.Array, share: jax.Array):
  """Returns the random key for a device's rows, of that of the global batch.

  Random arrays are [b, ...], and their row j is row first + j of the global
  batch, on which alone threefry's numbers depend; those of rbg depend on `share`,
  the index of the device's rows among all devices'.
  """
  if str(jax.random.key_impl(key)) != _THREEFRY:
    return jax.random.fold_in(key, share)
  data = _with_row(jax.random.key_data(key), first)
  return jax.random.wrap_key_data(data, impl=_impl())


def for_parts(key: jax.Array, parts: int) -> jax.Array:
  """Returns the key for arrays with `parts` rows for each row of the batch.

  A key that is not from `for_rows` is returned.
  """
  if str(jax.random.key_impl(key)) != dropout.ROW_KEYS:
    return key
  data = jax.random.key_data(key)
  first = data[..., 2] * jnp.uint32(parts)
  return jax.random.wrap_key_data(
    _with_row(data[..., :2], first[..., None]), impl=_impl()
  )


def for_batch(key: jax.Array) -> jax.Array:
  """Returns the global batch's key, given `for_rows`'; any other as it is."""
  if str(jax.random.key_impl(key)) != dropout.ROW_KEYS:
    return key
  return _threefry(jax.random.key_data(key))


@functools.cache
def _impl():
  """Returns threefry with a third word in the key, the first row."""
  return jax.extend.random.define_prng_impl(
    key_shape=(3,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name='threefry_rows',
    tag=dropout.ROW_KEYS,
  )


def _with_row(data, first):
  first = jnp.asarray(first).astype(jnp.uint32)
  first = jnp.broadcast_to(first, (*data.shape[:-1], 1))
  return jnp.concatenate([data, first], -1)


def _threefry(data):
  return jax.random.wrap_key_data(data[:2], impl=_THREEFRY)


def _seed(seed):
  return _with_row(jax.random.key_data(jax.random.key(seed, impl=_THREEFRY)), 0)


def _split(data, shape):
  keys = jax.random.split(_threefry(data), shape)
  return _with_row(jax.random.key_data(keys), data[2])


def _fold_in(data, number):
  key = jax.random.fold_in(_threefry(data), number)
  return _with_row(jax.random.key_data(key), data[2])


def _random_bits(data, bit_width, shape):
  """Hashes (row, index within the row) of each value, two 32-bit words."""
  row = jax.lax.broadcasted_iota(jnp.uint32, shape, 0) + data[2]
  place = jnp.zeros(shape, jnp.uint32)
  for axis in range(1, len(shape)):
    here = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    place = place * jnp.uint32(shape[axis]) + here
  a, b = jax.extend.random.threefry2x32_p.bind(data[0], data[1], row, place)
  # Like jax. `Dropout` never asks for more than 32 bits.
  return (a ^ b).astype({8: 'uint8', 16: 'uint16', 32: 'uint32'}[bit_width])
