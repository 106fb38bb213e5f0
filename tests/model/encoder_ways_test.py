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


@pytest.mark.slow
def test_layers_keep_less_than_products():
  assert run(remat='layer')[2] < run(remat='products')[2]


def test_scanned_layers_are_the_layers():
  loss, gradient, _ = run(deterministic=True)
  found, other, _ = run(deterministic=True, scan_layers=True)
  assert_close((found, other), (loss, gradient))


def test_scanned_layers_drop_each_their_own():
  c = dataclasses.replace(SMALL, scan_layers=True, norm='pre', dropout=0.5)
  init = functools.partial(encoder.Encoder(c).init, jax.random.key(0))
  shapes = jax.eval_shape(lambda: init(X, TOKENS, True)['params'])
  # Blocks that add what dropout leaves of ones to their input.
  params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  for i in range(3):
    params[f'layer_{i}']['mlp_out']['bias'] = np.ones(8, 'f4')
  params['final_norm']['scale'] = np.ones(8, 'f4')
  apply = functools.partial(encoder.Encoder(c).apply, {'params': params})
  found = jax.jit(
    lambda key: apply(0 * X, TOKENS, False, rngs={'dropout': key})
  )(jax.random.key(2))
  # Three coins each: were they one, a token would have two values only.
  assert max(len(np.unique(token)) for token in found.reshape(-1, 8)) > 2


def test_a_scan_holds_one_program_for_all_layers():
  def text(**changes):
    c = dataclasses.replace(SMALL, **changes)
    model = encoder.Encoder(c)
    params = jax.eval_shape(
      lambda: model.init(jax.random.key(0), X, TOKENS, True)
    )

    def apply(p):
      return model.apply(p, X, TOKENS, True)

    return str(jax.make_jaxpr(apply)(params)).count('dot_general')

  assert text(scan_layers=True) == text(num_layers=1)
  assert text() == 3 * text(num_layers=1)


# B=2 S=128 D=128 H=2 K=64 F=8 L=1: the least that the kernels of attention do.
WIDE = bert_config.BertConfig(11, 128, 1, 2, 8, dropout=0.0)
POSITION = jnp.arange(128)[None]
PADDED = attention.Tokens(POSITION < jnp.array([[128], [85]]))
# Pairs of 50, 70 and 8 tokens; of 60, of 25, and 43 cells of padding.
PACKED = PADDED._replace(
  sequence_ids=jnp.array(
    [[1] * 50 + [2] * 70 + [3] * 8, [1] * 60 + [2] * 25 + [0] * 43]
  )
)


def make_wide_params():
  """Returns parameters of WIDE; no bias is zero, and attention is uneven."""
  x = jnp.zeros((1, 128, 128))
  shapes = jax.eval_shape(
    lambda key: encoder.Encoder(WIDE).init(key, x, PADDED, True),
    jax.random.key(0),
  )
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: rng.normal(0, 0.15, x.shape).astype('f4'), shapes
  )


def run_wide(tokens, rate, **changes):
  """Returns the outputs of tokens that are not padding, and gradients."""
  c = dataclasses.replace(WIDE, attention_dropout=rate, **changes)
  rng = np.random.default_rng(1)
  x, weights = rng.normal(size=(2, 2, 128, 128)).astype('f4')
  real = tokens.input_mask[..., None]

  def loss(params, x):
    out = encoder.Encoder(c).apply(
      params, x.astype(c.dtype), tokens, not rate, rngs={'dropout': KEY}
    )
    out = jnp.where(real, out.astype(jnp.float32), 0)
    return jnp.sum(out * weights), out

  gradient = jax.grad(loss, argnums=(0, 1), has_aux=True)
  return jax.jit(gradient)(make_wide_params(), x)


@pytest.mark.parametrize(
  'tokens, rate, causal, dtype, tolerance',
  [
    (PADDED, 0.0, False, 'float32', 2e-6),
    (PACKED, 0.5, True, 'float32', 2e-6),
    (PADDED, 0.5, False, 'bfloat16', 0.02),  # it rounds to 2 ** -8
  ],
  ids=['padded', 'packed, causal, dropout', 'bfloat16, dropout'],
)
def test_the_attention_of_kernels_is_that_of_xla(
  tokens, rate, causal, dtype, tolerance
):
  """In values and gradients; they are interpreted on CPUs."""
  found, expected = (
    run_wide(tokens, rate, causal=causal, dtype=dtype, attention=way)
    for way in ('fused', 'xla')
  )

  def check(ours, theirs):
    error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    assert error < tolerance

  jax.tree.map(check, *jax.tree.map(np.ravel, (found, expected)))
