"""Elementwise operations and layer normalisation, with gradients of their own.

Autodiff rounds each term of a gradient to the activations' type before it adds
them; here they are added in float32 and rounded once. Next to a matrix product
on a TPU, each elementwise operation counts: GELU's gradient takes 14, with
`flax.linen.gelu` 21.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.ops import normalisation_kernels

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
    return (0.5 * wide * (1 + _tanh(wide))).astype(x.dtype)

  def by_sigmoid(x):
    wide = x.astype(jnp.float32)
    return (wide * jax.nn.sigmoid(2 * _inner(wide))).astype(x.dtype)

  return jax.lax.platform_dependent(x, cuda=by_sigmoid, default=by_tanh), x


def _gelu_backward(x, gradient):
  def by_tanh(x, gradient):
    wide = x.astype(jnp.float32)
    tanh = _tanh(wide)
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


def _tanh(x):
  return jnp.tanh(_inner(x))


def _inner(x):
  """Returns the argument of tanh."""
  return x * (_LINEAR + _CUBIC * (x * x))


def _grow(x):
  """Returns x times the derivative of tanh's argument."""
  return x * (_LINEAR + 3 * _CUBIC * (x * x))


gelu_tanh.defvjp(_gelu_forward, _gelu_backward)


class LayerNorm(nn.Module):
  """Normalises the last axis (arXiv 1607.06450); trains `scale` and `bias`.

  Attributes:
    dtype: type of the result; everything is computed in float32.
    kernels: whether NVIDIA GPUs use `normalisation_kernels`.
  """

  epsilon: float
  dtype: str
  kernels: bool = False

  @nn.compact
  def __call__(self, x):
    size = x.shape[-1:]
    scale = self.param('scale', nn.initializers.ones, size)
    bias = self.param('bias', nn.initializers.zeros, size)
    return normalise(x, scale, bias, self.epsilon, self.dtype, self.kernels)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def normalise(
  x: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  epsilon: float,
  dtype: str,
  kernels: bool = False,
):
  """Returns x [..., D] normalised, times scale [D], plus bias [D]."""
  return _normalise_forward(x, scale, bias, epsilon, dtype, kernels)[0]


def _normalise_forward(x, scale, bias, epsilon, dtype, kernels):
  options = {'epsilon': epsilon, 'dtype': dtype}
  ways = normalisation_kernels.forward, _plain_forward
  kernel, plain = (functools.partial(way, **options) for way in ways)
  y, *sums = _choose(kernels, kernel, plain, x, scale, bias)
  return y, (x, *sums, scale)


def _normalise_backward(epsilon, dtype, kernels, kept, gradient):
  del epsilon, dtype
  kernel = normalisation_kernels.backward
  return _choose(kernels, kernel, _plain_backward, *kept, gradient)


def _choose(kernels, kernel, plain, *arrays):
  if kernels:
    return normalisation_kernels.choose(kernel, plain, *arrays)
  return plain(*arrays)


def _plain_forward(x, scale, bias, epsilon, dtype):
  """Returns what `normalisation_kernels.forward` does, in XLA's operations."""
  wide = x.astype(jnp.float32)
  mean = jnp.mean(wide, -1, keepdims=True)
  # In the same pass as the mean; rounding may make it slightly negative.
  variance = jnp.mean(wide * wide, -1, keepdims=True) - mean * mean
  inverse = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
  ones = (1,) * (x.ndim - 1)
  scale, bias = scale.reshape(*ones, -1), bias.reshape(*ones, -1)
  y = (wide - mean) * (inverse * scale) + bias
  return y.astype(dtype), mean, inverse


def _plain_backward(x, mean, inverse, scale, gradient):
  """Returns what `normalisation_kernels.backward` does."""
  scale = scale.reshape((1,) * (x.ndim - 1) + (-1,))
  gradient = gradient.astype(jnp.float32)
  centred = x.astype(jnp.float32) - mean
  moved = gradient * scale
  # dx = inverse (moved - mean(moved) - normal mean(moved normal)), written as
  # two arrays, each times a scalar per row, plus a third scalar per row.
  along = -(inverse**3) * jnp.mean(moved * centred, -1, keepdims=True)
  level = inverse * jnp.mean(moved, -1, keepdims=True)
  dx = moved * inverse + centred * along - level
  rows = tuple(range(x.ndim - 1))
  dscale = jnp.sum(gradient * (centred * inverse), rows)
  return dx.astype(x.dtype), dscale, jnp.sum(gradient, rows)


normalise.defvjp(_normalise_forward, _normalise_backward)
