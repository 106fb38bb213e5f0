"""Biases and GELU, with gradients of their own.

Autodiff rounds each term of a gradient to the activations' type before it adds
them; here they are added in float32 and rounded once. Next to a matrix product
on a TPU, each elementwise operation counts: GELU's gradient takes 14, with
`flax.linen.gelu` 21.
"""

import functools
import math

import jax
import jax.numpy as jnp

_LINEAR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _LINEAR


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def add_bias(x: jax.Array, bias: jax.Array, as_rows: bool = False):
  """Returns x [..., *F] plus bias [*F], which is first rounded to x's type.

  The bias's gradient is summed in float32: in bfloat16, thousands of rows of
  one sign can lose half of their sum on a CPU.

  Args:
    as_rows: for NVIDIA GPUs, adds to a matrix with a column for each number of
      the bias, as cuBLAS can do at the end of the product that makes it.
  """

  def plain(x, bias):
    return x + bias.reshape((1,) * (x.ndim - bias.ndim) + bias.shape)

  def by_rows(x, bias):
    return (x.reshape(-1, bias.size) + bias.reshape(1, -1)).reshape(x.shape)

  bias = bias.astype(x.dtype)
  if as_rows:
    return jax.lax.platform_dependent(x, bias, cuda=by_rows, default=plain)
  return plain(x, bias)


def _add_bias_forward(x, bias, as_rows):
  return add_bias(x, bias, as_rows), bias


def _add_bias_backward(as_rows, bias, gradient):
  del as_rows
  rows = tuple(range(gradient.ndim - bias.ndim))
  total = jnp.sum(gradient, rows, dtype=jnp.float32)
  return gradient, total.astype(bias.dtype)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


@jax.custom_vjp
def gelu_tanh(x: jax.Array):
  """Returns GELU by tanh (arXiv 1606.08415), in x's type.

  It is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))).
  """
  return _gelu_forward(x)[0]


def _gelu_forward(x):
  def by_tanh(x):
    wide = x.astype(jnp.float32)
    return (0.5 * wide * (1 + jnp.tanh(_inner(wide)))).astype(x.dtype)

  def by_sigmoid(x):
    wide = x.astype(jnp.float32)
    return (wide * jax.nn.sigmoid(2 * _inner(wide))).astype(x.dtype)

  return jax.lax.platform_dependent(x, cuda=by_sigmoid, default=by_tanh), x


def _gelu_backward(x, gradient):
  def by_tanh(x, gradient):
    wide = x.astype(jnp.float32)
    tanh = jnp.tanh(_inner(wide))
    slope = 0.5 * (1 + tanh) * (1 + _grow(wide) * (1 - tanh))
    return (gradient.astype(jnp.float32) * slope).astype(x.dtype)

  def by_sigmoid(x, gradient):
    x, gradient = jax.lax.optimization_barrier((x, gradient))
    wide = x.astype(jnp.float32)
    part = jax.nn.sigmoid(2 * _inner(wide))
    slope = part * (1 + 2 * _grow(wide) * (1 - part))
    found = (gradient.astype(jnp.float32) * slope).astype(x.dtype)
    return jax.lax.optimization_barrier(found)

  found = jax.lax.platform_dependent(
    x, gradient, cuda=by_sigmoid, default=by_tanh
  )
  return (found,)


def _inner(x):
  return x * (_LINEAR + _CUBIC * (x * x))


def _grow(x):
  """Returns x times the derivative of tanh's argument."""
  return x * (_LINEAR + 3 * _CUBIC * (x * x))


gelu_tanh.defvjp(_gelu_forward, _gelu_backward)
