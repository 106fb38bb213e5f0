"""Tests of the ways to compute the encoder: the same result by all."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import attention, bert_config, encoder

# B=2 S=8 D=8 H=2 F=12 L=3.
SMALL = bert_config.BertConfig(11, 8, 3, 2, 12, max_positions=8)
X = jax.random.normal(jax.random.key(1), (2, 8, 8))
TOKENS = attention.Tokens(jnp.arange(8)[None] < jnp.array([[8], [5]]))
KEY = jax.random.key(2)


@functools.cache
def make_params():
  plain = encoder.Encoder(SMALL)
  return jax.jit(lambda key: plain.init(key, X, TOKENS, True))(
    jax.random.key(0)
  )


@functools.cache
def run(deterministic=False, **changes):
  """Returns (loss, gradient, words of the residuals) of an encoder."""
  c = dataclasses.replace(SMALL, **changes)

  def loss(params):
    out = encoder.Encoder(c).apply(
      params, X, TOKENS, deterministic, rngs={'dropout': KEY}
    )
    return jnp.sum(out * jnp.arange(8)[None, None])

  params = make_params()
  kept = jax.tree.leaves(jax.eval_shape(lambda p: jax.vjp(loss, p), params)[1])
  return *jax.jit(jax.value_and_grad(loss))(params), sum(x.size for x in kept)


def assert_close(a, b):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), a, b
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'remat, attention', [('products', 'recompute'), ('layer', 'xla')]
)
def test_rematerialization_changes_memory_alone(remat, attention):
  loss, gradient, kept = run()
  found, other, fewer = run(remat=remat, attention=attention)
  assert_close((found, other), (loss, gradient))
  assert fewer < 0.75 * kept
