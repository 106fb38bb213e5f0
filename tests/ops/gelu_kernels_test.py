"""Tests of the GPU's kernels of GELU, in Pallas' interpreter."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import elementwise, gelu_kernels
from tests import lowering


def make_arrays(shape, dtype):
  """Returns x, with large and small numbers, a bias and a gradient."""
  rng = np.random.default_rng(0)
  x, gradient = rng.normal(0, 4, shape), rng.normal(0, 1, shape)
  x, gradient = jnp.asarray(x, dtype), jnp.asarray(gradient, dtype)
  return x, jnp.asarray(rng.normal(0, 1, shape[-1:]), 'f4'), gradient


@pytest.mark.parametrize(
  'shape, dtype', [((3, 10, 64), 'bfloat16'), ((2, 8, 768), 'float32')]
)
def test_values_and_gradients_are_those_of_the_plain_code(shape, dtype):
  """In blocks of 2 rows of 64, and of 256."""
  x, _, gradient = make_arrays(shape, dtype)
  near = 1e-6 if dtype == 'float32' else 2.0**-7  # to a neighbour
  y, expected = gelu_kernels.forward(x), elementwise.gelu_tanh(x)
  dx, sums = gelu_kernels.backward(x, gradient)
  _, pull = jax.vjp(elementwise.gelu_tanh, x)
  (expected_dx,) = pull(gradient)
  for one, other in ((y, expected), (dx, expected_dx)):
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    one, other = (np.asarray(x, 'f8') for x in (one, other))
    np.testing.assert_allclose(one, other, near, 5e-5)
  # Summed before they are rounded to dx's type.
  wide = jax.vjp(elementwise.gelu_tanh, x.astype('float32'))[1]
  (exact,) = wide(gradient.astype('float32'))
  expected = np.asarray(exact, 'f8').sum((0, 1))
  assert sums.dtype == jnp.float32
  np.testing.assert_allclose(sums, expected, 1e-5, 5e-4)


def test_a_program_adds_up_several_blocks(monkeypatch):
  """Blocks 0, 3, 6 and so on of 2 rows."""
  jax.clear_caches()
  size = gelu_kernels.BACKWARD._replace(programs=3)
  monkeypatch.setattr(gelu_kernels, 'BACKWARD', size)
  x, _, gradient = make_arrays((2, 40, 64), 'float32')
  dx, sums = gelu_kernels.backward(x, gradient)
  np.testing.assert_allclose(sums, dx.sum((0, 1)), 1e-5, 1e-4)
  jax.clear_caches()


def loss(x, bias):
  return jnp.sum(elementwise.add_bias_and_gelu(x, bias).astype('float32'))


GRADIENT = jax.value_and_grad(loss, argnums=(0, 1))


@pytest.mark.parametrize('size, dtype', [(64, 'float32'), (768, 'bfloat16')])
def test_rows_of_some_sizes_lower_for_gpus(size, dtype):
  shapes = ((2, 128, size), dtype), ((size,), 'float32')
  text = lowering.lower_for_gpus(
    GRADIENT, *(jax.ShapeDtypeStruct(*x) for x in shapes)
  )
  kernels = set(re.findall(r'gelu_(?:for|back)ward', text))
  assert kernels == {'gelu_forward', 'gelu_backward'}


def test_elsewhere_it_is_the_plain_code_bit_for_bit():
  x, bias, _ = make_arrays((2, 20, 128), 'bfloat16')

  def plain(x, bias):
    y = elementwise.gelu_tanh(elementwise.add_bias(x, bias, True))
    return jnp.sum(y.astype('float32'))

  expected = jax.jit(jax.value_and_grad(plain, argnums=(0, 1)))(x, bias)
  jax.tree.map(
    np.testing.assert_array_equal, jax.jit(GRADIENT)(x, bias), expected
  )
