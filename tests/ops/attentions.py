"""Runs implementations of attention as the model does, for their tests."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import attention, bert_config


def make_qkv(rows, length, heads, size, dtype='float32'):
  """Returns random queries, keys and values, [B, S, 3, H, K]."""
  shape = rows, length, 3, heads, size
  return jax.random.normal(jax.random.key(1), shape, jnp.float32).astype(dtype)


def with_gradient(
  name, qkv, mask, key=None, pairs=None, bias=1.0, rate=0.1, **options
):
  """Returns the output, and gradients of its product with fixed numbers.

  Rows of padding only have zeros: no loss reads them, and what is left of their
  scores beside the mask depends on the implementation.

  Args:
    name: of the implementation, `compute.attention`.
    mask: tokens that are there, [B, S].
    pairs: numbers of the pairs of packed rows, [B, S].
    bias: size of the biases.
    **options: of the model's config.
  """
  _, _, _, h, k = qkv.shape
  config = bert_config.BertConfig(
    11, h * k, 1, h, 8, attention=name, attention_dropout=rate, **options
  )
  pairs = None if pairs is None else jnp.asarray(pairs)
  tokens = attention.Tokens(jnp.asarray(mask), pairs)
  numbers = jax.random.normal(
    jax.random.key(9), (*qkv.shape[:2], h, k), jnp.float32
  )
  added = jax.random.normal(jax.random.key(8), qkv.shape[2:], jnp.float32)
  added = (bias * added).astype(qkv.dtype)

  @jax.jit
  def both(qkv):
    def attend(x, b):
      out = attention.attend(x, b, tokens, key, config)
      return jnp.where(mask.any(1)[:, None, None, None], out, 0)

    out, pull = jax.vjp(attend, qkv, added)
    return out, *pull(numbers.astype(out.dtype))

  return [np.asarray(x, np.float32) for x in both(qkv)]


def check(run, name, tolerance=2e-6, **options):
  """Asserts that run(name, ...) returns nearly what run('xla', ...) does."""
  for ours, plain in zip(
    run(name, **options), run('xla', **options), strict=True
  ):
    assert np.linalg.norm(ours - plain) / np.linalg.norm(plain) < tolerance


def check_slope(attend, shape):
  """Compares the gradient of a function of qkv with the slope one way."""
  qkv, way = jax.random.normal(jax.random.key(2), (2, *shape))
  loss, step = jax.jit(lambda x: jnp.sum(jnp.sin(attend(x)))), 1e-2
  slope = (loss(qkv + step * way) - loss(qkv - step * way)) / (2 * step)
  found = jnp.sum(jax.jit(jax.grad(loss))(qkv) * way)
  np.testing.assert_allclose(found, slope, rtol=2e-2)
