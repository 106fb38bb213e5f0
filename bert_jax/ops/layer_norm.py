"""LayerNorm with a gradient of its own.

Autodiff rounds each term of the gradient to the activations' type before it adds
them; here they are added in float32 and rounded once.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp


class LayerNorm(nn.Module):
  """Normalises the last axis (arXiv 1607.06450); trains `scale`, maybe `bias`."""

  epsilon: float
  dtype: str  # of the result; everything is computed in float32
  use_bias: bool = True

  @nn.compact
  def __call__(self, x):
    size = x.shape[-1:]
    scale = self.param('scale', nn.initializers.ones, size)
    if self.use_bias:
      bias = self.param('bias', nn.initializers.zeros, size)
    else:
      bias = jnp.zeros(size)
    return normalise(x, scale, bias, self.epsilon, self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalise(
  x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, dtype: str
):
  """Returns x [..., D] normalised, times scale [D], plus bias [D]."""
  return _forward(x, scale, bias, epsilon, dtype)[0]


def _forward(x, scale, bias, epsilon, dtype):
  wide = x.astype(jnp.float32)
  mean = jnp.mean(wide, -1, keepdims=True)
  # In the same pass as the mean; rounding may make it slightly negative.
  variance = jnp.mean(wide * wide, -1, keepdims=True) - mean * mean
  inverse = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
  ones = (1,) * (x.ndim - 1)
  wide_scale, bias = scale.reshape(*ones, -1), bias.reshape(*ones, -1)
  y = (wide - mean) * (inverse * wide_scale) + bias
  return y.astype(dtype), (x, mean, inverse, scale)


def _backward(epsilon, dtype, residuals, gradient):
  del epsilon, dtype
  x, mean, inverse, scale = residuals
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


normalise.defvjp(_forward, _backward)
