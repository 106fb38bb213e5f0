"""Runs implementations of attention as the model does, for their tests."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import attention, bert_config


def make_mask(length, *tokens):
  """Returns a mask of rows with so many tokens, int32 [B, S]."""
  return (np.arange(length) < np.array(tokens)[:, None]).astype(np.int32)


def with_gradient(
  name,
  shape,
  tokens,
  key=None,
  pairs=None,
  rate=0.1,
  dtype='float32',
  window=None,
  **options,
):
  """Returns the output, and gradients of its product with fixed numbers.

  Rows of padding only, and with a window all padding, have zeros: no loss reads
  them, and what is left of their scores beside the mask depends on the
  implementation.

  Args:
    name: of the implementation, `compute.attention`.
    shape: (S, H, K).
    tokens: their number in each row.
    pairs: numbers of the pairs of packed rows, [B, S].
    window: the largest distance at which a token is seen; then there is no bias.
    **options: of the model's config.
  """
  s, h, k = shape
  b, mask = len(tokens), make_mask(s, *tokens)
  config = bert_config.BertConfig(
    11, h * k, 1, h, 8, attention=name, attention_dropout=rate, **options
  )
  pairs = None if pairs is None else jnp.asarray(pairs)
  features = attention.Tokens(jnp.asarray(mask), pairs)
  qkv, bias, numbers = (
    jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)
    for seed, shape in ((1, (b, s, 3, h, k)), (8, (3, h, k)), (9, (b, s, h, k)))
  )

  shown = (mask if window else mask.any(1, keepdims=True))[:, :, None, None] > 0

  @jax.jit
  def both(qkv):
    def attend(x, *bias):
      bias = bias[0] if bias else None
      out = attention.attend(x, bias, features, key, config, window=window)
      return jnp.where(shown, out, 0)

    out, pull = jax.vjp(attend, qkv, *[bias] * (window is None))
    return out, *pull(numbers)

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
