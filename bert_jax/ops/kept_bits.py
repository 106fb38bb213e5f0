"""Draws which weights dropout keeps as bits, for `flash_attention`.

XLA draws such a mask in three kernels, through bytes in memory; this is one
kernel (Pallas through Triton), whose only memory traffic is the bits. As XLA's
operations it would double the program of LARGE, and so the time to compile it.
The generator is Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", 2011).
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from bert_jax.ops import triton_calls

_BLOCK = 1024  # numbers, at most, of a program of the kernel
_WARPS = 8
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85  # of the key, from one round to the next
_ROUNDS = 10
_BYTES = 0x01010101


# Traced once for all layers of a program.
@functools.partial(jax.jit, static_argnames=('shape', 'keep'), inline=True)
def draw(key: jax.Array, shape: tuple[int, ...], keep: int):
  """Returns words of 32 bits, each of which is 1 with keep / 256.

  Args:
    key: of any kind; its two or more words are Philox's key and the upper half
      of its counter.
    shape: of the result, uint32; a multiple of 128 words.
    keep: 1 to 255.
  """
  data = jax.random.key_data(key).reshape(-1)
  data = jnp.pad(data, (0, max(0, 4 - len(data))))
  count = math.prod(shape)
  block = math.gcd(count, _BLOCK)

  def kernel(data, out):
    first = (pl.program_id(0) * block).astype(jnp.uint32)
    place = first + jax.lax.iota(jnp.uint32, block)
    out[...] = _draw(keep, place, data)

  words = triton_calls.call(
    *(kernel, [data], _WARPS, None),
    grid=(count // block,),
    in_specs=[pl.BlockSpec(data.shape, lambda i: (0,))],
    out_specs=pl.BlockSpec((block,), lambda i: (i,)),
    out_shape=jax.ShapeDtypeStruct((count,), jnp.uint32),
    name='draw_kept_bits',
  )
  return words.reshape(shape)


def _draw(keep, place, data):
  """Returns words whose bit 8 j + i comes from byte j of Philox's number i.

  Args:
    place: the words' places, uint32 [n].
    data: four words of a key, or a reference to them.
  """
  data, numbers = [data[i] for i in range(4)], []
  for call in range(2):
    numbers += philox((place, jnp.uint32(call), *data[2:]), data[:2])
  dropped = (_compare(x, keep) >> (7 - i) for i, x in enumerate(numbers))
  return ~functools.reduce(jnp.bitwise_or, dropped)


def philox(counter: tuple, key: tuple):
  """Returns four uint32 arrays of random bits.

  Args:
    counter: four uint32 arrays or numbers, which are broadcast.
    key: two uint32 numbers.
  """
  a, b, c, d = counter
  first, second = key
  for _ in range(_ROUNDS):
    high_a, low_a = _multiply(a, _MULTIPLIERS[0])
    high_c, low_c = _multiply(c, _MULTIPLIERS[1])
    a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
    first, second = first + np.uint32(_STEPS[0]), second + np.uint32(_STEPS[1])
  return a, b, c, d


def _multiply(x, factor):
  with jax.enable_x64(True):
    product = x.astype(jnp.uint64) * np.uint64(factor)
    return (product >> np.uint64(32)).astype('u4'), product.astype('u4')


def _compare(words, keep):
  """Returns, in the top bit of each byte, whether the byte is >= keep.

  Other bits are 0. A byte is, if 256 - keep more would not fit it: if its lower
  seven bits carry into the top bit, and that overflows.
  """
  more = 256 - keep
  sums = (words & np.uint32(0x7F * _BYTES)) + np.uint32((more & 0x7F) * _BYTES)
  # Both of two top bits and the carry overflow, or one of the former and it.
  over = words | sums if more & 0x80 else words & sums
  return over & np.uint32(0x80 * _BYTES)
