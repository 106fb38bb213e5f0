"""Random bytes, four from each 32-bit word, laid out for vector units.

Byte j of the word at (..., r, c) becomes the value at (..., r + j * n / 4, c)
of n rows. So a word's bytes go to the same position of different registers, and
no data moves within a register.
"""

import jax
import jax.numpy as jnp


def draw(key: jax.Array, shape: tuple[int, ...]):
  """Returns uniform uint8 values, four from each 32-bit draw if they fit.

  Args:
    key: a jax random key.
    shape: shape of the result; its last axis but one is split into quarters,
      unless that is the first axis, of rows, each of which has its own numbers.
  """
  # Generators other than threefry draw bytes as cheaply as words.
  threefry = 'rbg' not in str(jax.random.key_impl(key))
  if not threefry or len(shape) < 3 or shape[-2] % 4:
    return jax.random.bits(key, shape, jnp.uint8)
  *rest, rows, columns = shape
  words = jax.random.bits(key, (*rest, rows // 4, columns), jnp.uint32)
  parts = [(words >> (8 * j)).astype(jnp.uint8) for j in range(4)]
  return jnp.concatenate(parts, -2)
