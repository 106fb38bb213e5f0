"""Dropout from eight random bits per value.

flax.linen.Dropout draws 32 bits per value; a byte is four times cheaper and
rounds 0.1 to 26/256. What is kept is scaled by the rounded probability, so
the expectation stays exact.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.ops import random_bytes


def count_kept(rate: float) -> int:
  """Returns how many of 256 values are kept."""
  return round((1 - rate) * 256)


def drop(x: jax.Array, values: jax.Array, rate: float):
  """Drops what has a large byte.

  Args:
    x: of any shape.
    values: uniform uint8, like x.
    rate: probability to drop.
  """
  keep = count_kept(rate)
  # Chosen first, the gradient is rounded once, not before and after.
  chosen = jnp.where(values < keep, x, jnp.zeros_like(x))
  # In float32: bfloat16 would round the factor by 0.3 %.
  return (chosen.astype(jnp.float32) * (256 / keep)).astype(x.dtype)


class Dropout(nn.Module):
  """Drops with probability `rate`, by the `dropout` stream."""

  rate: float

  @nn.compact
  def __call__(self, x, deterministic: bool):
    if deterministic or count_kept(self.rate) == 256:
      return x
    key = self.make_rng('dropout')
    return drop(x, random_bytes.draw(key, x.shape), self.rate)
