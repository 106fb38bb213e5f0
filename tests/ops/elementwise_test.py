"""Tests of biases and GELU, and of their gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.ops import elementwise

ROWS, LENGTH, PREDICTIONS, VOCAB = 64, 64, 10, 500


def test_a_sum_over_more_rows_than_bfloat16_counts_is_right():
  x, bias = jnp.ones((5000, 2, 3), 'bfloat16'), jnp.zeros((2, 3))

  def total(bias):
    return jnp.sum(elementwise.add_bias(x, bias).astype(jnp.float32))

  # 5,000 itself is no bfloat16 number: counting stops at 256 there.
  assert jax.jit(jax.grad(total))(bias).tolist() == [[5000.0] * 3] * 2


def test_the_bias_is_rounded_to_the_type_of_the_activations():
  found = elementwise.add_bias(
    jnp.ones((1, 1), 'bfloat16'), jnp.float32([1 + 2**-8])
  )
  assert (found.dtype, found.item()) == (jnp.bfloat16, 2.0)


def test_a_bias_of_rows_is_the_same_and_for_nvidia_gpus_only(monkeypatch):
  x, bias = jnp.arange(24.0).reshape(2, 2, 2, 3), jnp.arange(6.0).reshape(2, 3)

  def run(as_rows):
    y, pull = jax.vjp(lambda *a: elementwise.add_bias(*a, as_rows), x, bias)
    return y, *pull(x * x)

  traced = jax.jit(lambda: run(True)[0]).trace()
  for platform in ('cuda', 'cpu'):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ('tensor<4x6xf32>' in text) == (platform == 'cuda')
  plain = run(False)
  monkeypatch.setattr(
    jax.lax, 'platform_dependent', lambda *x, cuda, default: cuda(*x)
  )
  jax.tree.map(np.testing.assert_array_equal, run(True), plain)


POINTS = jnp.array([-9.0, -3.0, -1.0, -0.1, 0.0, 0.1, 0.7, 1.0, 3.0, 9.0])


def slopes(function, x):
  return jax.grad(lambda x: function(x).astype('float32').sum())(x)


def test_gelu_is_that_of_flax_and_so_is_its_gradient():
  np.testing.assert_allclose(
    elementwise.gelu_tanh(POINTS),
    nn.gelu(POINTS, approximate=True),
    rtol=1e-6,
    atol=4e-7,
  )
  np.testing.assert_allclose(
    slopes(elementwise.gelu_tanh, POINTS),
    slopes(nn.gelu, POINTS),
    rtol=1e-5,
    atol=1e-6,
  )


def test_gelu_in_bfloat16_is_rounded_once():
  """flax's constants would be rounded, too: 0.797 for sqrt(2 / pi)."""
  small = POINTS.astype('bfloat16')
  wide = small.astype('float32')
  np.testing.assert_array_equal(
    elementwise.gelu_tanh(small), elementwise.gelu_tanh(wide).astype('bfloat16')
  )
  np.testing.assert_array_equal(
    slopes(elementwise.gelu_tanh, small),
    slopes(elementwise.gelu_tanh, wide).astype('bfloat16'),
  )


def test_gelu_of_nvidia_gpus_is_the_same(monkeypatch):
  """There tanh is computed by a sigmoid, in fewer operations."""
  points = jnp.linspace(-40, 40, 8001)

  def both(x):
    return elementwise.gelu_tanh(x), slopes(elementwise.gelu_tanh, x)

  (value, slope), small = both(points), both(points.astype('bfloat16'))
  monkeypatch.setattr(
    jax.lax, 'platform_dependent', lambda *x, cuda, default: cuda(*x)
  )
  found = both(points)
  np.testing.assert_allclose(found[0], value, rtol=1e-6, atol=1e-6)
  np.testing.assert_allclose(found[1], slope, rtol=1e-5, atol=1e-5)
  for one, other in zip(both(points.astype('bfloat16')), small, strict=True):
    one, other = one.astype('float32'), other.astype('float32')
    np.testing.assert_allclose(one, other, rtol=2**-7, atol=1e-5)


def test_nvidia_gpus_compute_gelu_again_for_its_gradient():
  grad = jax.jit(lambda x: slopes(elementwise.gelu_tanh, x)).trace(POINTS)
  for platform in ('cuda', 'cpu', 'tpu'):
    text = grad.lower(lowering_platforms=(platform,)).as_text()
    assert text.count('optimization_barrier') == 2 * (platform == 'cuda')
