"""Dropout from eight random bits per value.

flax.linen.Dropout draws 32 bits per value; a byte is four times cheaper and
rounds 0.1 to 26/256. Kept values are divided by the rounded probability of
keeping them, so the expectation is exact.

Masks of attention weights are drawn inside a kernel or for a block. With a
threefry key the bytes are what `draw` gives for the weights [B, H, keys,
queries]. With any other key, the TPU's generator draws them, which is much
faster; off TPUs threefry replaces it, with other numbers. For kernels of NVIDIA
GPUs, `kept_bits` draws instead.
"""

import functools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

from bert_jax.ops import dropout_rate


def drop(x: jax.Array, values: jax.Array, rate: float):
  """Sets values of x to zero at random and scales the others.

  Args:
    values: uniform random uint8, of x's shape.
    rate: probability that a value is dropped.
  """
  keep = dropout_rate.count_kept(rate)
  # Selecting before scaling rounds the gradient once instead of twice.
  chosen = jnp.where(values < keep, x, jnp.zeros_like(x))
  # In float32: bfloat16 would change the factor by 0.3 %.
  return (chosen.astype(jnp.float32) * (256 / keep)).astype(x.dtype)


def draw(key: jax.Array, shape: tuple[int, ...]):
  """Returns uniform uint8 values, four from each 32-bit draw if they fit.

  Byte j of the word at (..., r, c) becomes the value at (..., r + j * n / 4, c)
  of n rows. So a word's bytes go to the same position of different registers,
  and no data moves within a register. On NVIDIA's GPUs, a word of an `rbg` key
  becomes four neighbours, if the last axis is a multiple of 4.

  Args:
    shape: of the result; its second-to-last axis is split into quarters, unless
      that is the first axis, of rows, each of which has its own numbers.
  """
  by_bytes = functools.partial(jax.random.bits, shape=shape, dtype=jnp.uint8)
  if 'rbg' in str(jax.random.key_impl(key)):
    if shape[-1] % 4:
      return by_bytes(key)

    def by_words(key):  # each makes four bytes next to each other
      some = *shape[:-1], shape[-1] // 4
      words = jax.random.bits(key, some, jnp.uint32)
      return jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(shape)

    # Off GPUs, bytes are drawn as cheaply as words. For GPUs, XLA draws a word
    # for each byte, with 38 operations instead of 11.
    return jax.lax.platform_dependent(key, cuda=by_words, default=by_bytes)
  if len(shape) < 3 or shape[-2] % 4:
    return by_bytes(key)
  *rest, rows, columns = shape
  return _split(jax.random.bits(key, (*rest, rows // 4, columns), jnp.uint32))


def _split(words):
  """Returns the bytes of words [..., r, c] as values [..., 4 r, c]."""
  parts = [(words >> (8 * j)).astype(jnp.uint8) for j in range(4)]
  return jnp.concatenate(parts, -2)


class Dropout(nn.Module):
  """Dropout of probability `rate`, with the random stream `dropout`."""

  rate: float

  @nn.compact
  def __call__(self, x, deterministic: bool):
    if deterministic or dropout_rate.count_kept(self.rate) == 256:
      return x
    return drop(x, draw(self.make_rng('dropout'), x.shape), self.rate)


SEEDS = 4  # words per row
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # of threefry-2x32
# The tag by which jax names the key type of `parallel/row_keys.py`: threefry
# keys with the number of a row.
ROW_KEYS = 'rows'
_THREEFRY = ('threefry2x32', ROW_KEYS)


def is_threefry(key: jax.Array) -> bool:
  """Returns whether a key gives the same bits inside and outside a kernel."""
  return str(jax.random.key_impl(key)) in _THREEFRY


def make_seeds(key: jax.Array, shape: tuple[int, int, int]):
  """Returns each row's seed, int32 [B, 4].

  It is threefry's key and its counter at the row's first word, high half first;
  or two words to seed the TPU's generator.

  Args:
    shape: (B, H, S).
  """
  b, h, s = shape
  data = jax.random.key_data(key)
  zero = jnp.zeros(b, jnp.uint32)
  if not is_threefry(key):
    mixed = jax.random.wrap_key_data(data[:2], impl='threefry2x32')
    for word in data[2:]:
      mixed = jax.random.fold_in(mixed, word)
    words = [*jax.random.bits(mixed, (2, b), jnp.uint32), zero, zero]
  elif len(data) == 3:  # the third is the first row
    rows = jnp.arange(b, dtype=jnp.uint32)
    words = [data[0] + zero, data[1] + zero, data[2] + rows, zero]
  else:
    count = np.arange(b, dtype=np.uint64) * (h * _count_words(s) * s)
    halves = (count >> 32).astype('uint32'), count.astype('uint32')
    words = [data[0] + zero, data[1] + zero, *map(jnp.asarray, halves)]
  return jax.lax.bitcast_convert_type(jnp.stack(words, 1), jnp.int32)


def _count_words(length: int) -> int:
  """Returns the words that `draw` draws for the keys of a query."""
  return length if length % 4 else length // 4


def draw_block(
  seeds: jax.Array, first_head: jax.Array, shape: tuple[int, int, int, int]
):
  """Returns random bytes of some rows and heads, uint8 [r, n, S, S].

  Args:
    seeds: the rows' seeds from `make_seeds` of a threefry key, [r, 4].
    first_head: int32, number of the first of the n heads.
    shape: (r, n, S, S), queries before keys.
  """
  r, n, length, _ = shape
  words = _count_words(length)
  drawn = r, n, words, length  # keys before queries
  _, head, word, query = (
    jax.lax.broadcasted_iota(jnp.uint32, drawn, axis) for axis in range(4)
  )
  head = head + first_head.astype(jnp.uint32)
  key_0, key_1, x, y = (
    seed[:, None, None, None]
    for seed in jax.lax.bitcast_convert_type(seeds, jnp.uint32).T
  )
  place = y + (head * jnp.uint32(words) + word) * jnp.uint32(length) + query
  a, b = jax.extend.random.threefry2x32_p.bind(
    *(jnp.broadcast_to(word, drawn) for word in (key_0, key_1, x)), place
  )
  bits = a ^ b
  found = bits.astype(jnp.uint8) if words == length else _split(bits)
  return found.swapaxes(-1, -2)


def draw_kept(
  seed: Sequence[jax.Array],
  heads: Sequence[jax.Array],
  block: jax.Array | int,
  *,
  length: int,
  keep: int,
  on_chip: bool,
):
  """Returns, for each head, the weights of 128 queries to keep, bool [S, 128].

  Args:
    seed: four int32 scalars, a row of `make_seeds`.
    heads: int32, numbers of heads of the row.
    block: int32, number of the block of 128 queries.
    length: S, a multiple of 128.
    keep: probability of keeping a weight, in 256ths.
    on_chip: whether the TPU's generator draws the words.
  """
  shape = (length // 4, 128)
  if on_chip:
    # Seeded once for all heads, since seeding takes as long as drawing.
    pltpu.prng_seed(seed[0], seed[1] + heads[0] * (length // 128) + block)
    return [_are_kept(pltpu.prng_random_bits(shape), keep) for _ in heads]
  row, query = (jax.lax.broadcasted_iota(jnp.int32, shape, n) for n in (0, 1))
  place = row * length + query
  firsts = [seed[3] + h * (length // 4 * length) + block * 128 for h in heads]
  return [_are_kept(_threefry(*seed[:3], x + place), keep) for x in firsts]


def _are_kept(words, keep):
  """Returns whether bytes of int32 [S / 4, 128] are below keep, [S, 128].

  Byte j of a word belongs to the j-th quarter of the keys, as in `draw`. It is
  shifted to the top, where the bytes below do not affect the comparison.
  Flipping the top bit makes a signed comparison unsigned.
  """
  words = words ^ _signed(0x80808080)
  top = jnp.concatenate([words << (24 - 8 * j) for j in range(4)])
  return top < _signed((keep << 24) ^ 0x80000000)


def _threefry(key_0, key_1, x, y):
  """Returns the xor of threefry-2x32's two words (Salmon et al., 2011)."""
  keys = [key_0, key_1, key_0 ^ key_1 ^ _signed(0x1BD11BDA)]
  x, y = x + keys[0], y + keys[1]
  for i in range(5):
    for distance in _ROTATIONS[i % 2]:
      x = x + y
      y = (y << distance) | jax.lax.shift_right_logical(y, 32 - distance)
      y = y ^ x
    x, y = x + keys[(i + 1) % 3], y + (keys[(i + 2) % 3] + (i + 1))
  return x ^ y


def _signed(word: int):
  return np.uint32(word).astype(np.int32)
