"""Elementwise operations and layer normalisation, with gradients of their own.

Autodiff rounds each term of a gradient to the activations' type before it adds
them; here they are added in float32 and rounded once. Next to a matrix product
on a TPU, each elementwise operation counts: GELU's gradient takes 14, with
`flax.linen.gelu` 21.
"""

import dataclasses
import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.ops import (
  dropout,
  gelu_kernels,
  normalisation_kernels,
  triton_calls,
)

_LINEAR = gelu_kernels.LINEAR
_CUBIC = gelu_kernels.CUBIC


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


@jax.custom_vjp
def add_bias_and_gelu(x: jax.Array, bias: jax.Array):
  """Returns `gelu_tanh` of x [..., F] plus bias [F], for NVIDIA GPUs.

  Args:
    x: what `gelu_kernels` supports.
  """
  return _add_bias_and_gelu_forward(x, bias)[0]


def _add_bias_and_gelu_forward(x, bias):
  x = add_bias(x, bias, True)
  y = triton_calls.choose(gelu_kernels.forward, gelu_tanh, x)
  return y, (x, bias)


def _add_bias_and_gelu_backward(kept, gradient):
  x, bias = kept

  def plain(x, gradient):
    (found,) = _gelu_backward(x, gradient)
    rows = tuple(range(found.ndim - 1))
    return found, jnp.sum(found, rows, dtype=jnp.float32)

  dx, dbias = triton_calls.choose(gelu_kernels.backward, plain, x, gradient)
  return dx, dbias.astype(bias.dtype)


add_bias_and_gelu.defvjp(
  _add_bias_and_gelu_forward, _add_bias_and_gelu_backward
)


class Update(NamedTuple):
  """What a residual connection adds to its input x: dropout(values + bias).

  Attributes:
    values: [..., D], like x; what `normalisation_kernels.supports_sum` allows.
    bias: [D].
    kept: uint8 [N / 8, D] from `normalisation_kernels.pack`, for the N rows of
      `values`; None turns dropout off.
  """

  values: jax.Array
  bias: jax.Array
  kept: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Normalisation:
  """How `normalise` computes: `LayerNorm`'s attributes; `keep` of dropout."""

  epsilon: float
  dtype: str
  kernels: bool = False
  keep: int = 256


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
  def __call__(self, x, update: Update | None = None, keep: int = 256):
    """Normalises x [..., D], or x + an update, of which dropout keeps keep."""
    size = x.shape[-1:]
    scale = self.param('scale', nn.initializers.ones, size)
    bias = self.param('bias', nn.initializers.zeros, size)
    how = Normalisation(self.epsilon, self.dtype, self.kernels, keep)
    return normalise(x, scale, bias, how, update)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalise(
  x: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  how: Normalisation,
  update: Update | None = None,
):
  """Returns x [..., D], or x + update, normalised, times scale, plus bias."""
  return _normalise_forward(x, scale, bias, how, update)[0]


def _normalise_forward(x, scale, bias, how, update):
  options = {'epsilon': how.epsilon, 'dtype': how.dtype, 'keep': how.keep}
  added = None
  if update:
    values = add_bias(update.values, update.bias, True)
    added = normalisation_kernels.Added(values, update.kept)
  kernel, plain = normalisation_kernels.forward, _plain_forward
  arrays = x, scale, bias, added
  y, mean, inverse, total = _choose(how, kernel, plain, options, *arrays)
  return y, (
    total,
    mean,
    inverse,
    scale,
    update and update._replace(values=None),
  )


def _normalise_backward(how, residuals, gradient):
  *arrays, update = residuals
  options = {'keep': how.keep, 'added': update is not None}
  kernel, plain = normalisation_kernels.backward, _plain_backward
  arrays += gradient, update and update.kept
  dx, dscale, dbias, found = _choose(how, kernel, plain, options, *arrays)
  if update:
    values, sums = found
    found = Update(values, sums.astype(update.bias.dtype), None)
  return dx, dscale, dbias, found


normalise.defvjp(_normalise_forward, _normalise_backward)


def _choose(how, kernel, plain, options, *arrays):
  """Returns what the kernel or, where there is none, the plain code makes."""
  kernel, plain = (functools.partial(f, **options) for f in (kernel, plain))
  if how.kernels and normalisation_kernels.supports(arrays[0]):
    return triton_calls.choose(kernel, plain, *arrays)
  return plain(*arrays)


def _plain_forward(x, scale, bias, added, *, epsilon, dtype, keep=256):
  """Returns what `normalisation_kernels.forward` does, in XLA's operations."""
  if added:
    x = x + _drop(added.update, added.kept, keep)
  wide = x.astype(jnp.float32)
  mean = jnp.mean(wide, -1, keepdims=True)
  # In the same pass as the mean; rounding may make it slightly negative.
  variance = jnp.mean(wide * wide, -1, keepdims=True) - mean * mean
  inverse = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
  ones = (1,) * (x.ndim - 1)
  scale, bias = scale.reshape(*ones, -1), bias.reshape(*ones, -1)
  y = (wide - mean) * (inverse * scale) + bias
  return y.astype(dtype), mean, inverse, x


def _plain_backward(
  x, mean, inverse, scale, gradient, kept=None, *, keep=256, added=False
):
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
  of_added = None
  if added:
    dupdate = _drop(dx, kept, keep)
    of_added = dupdate.astype(x.dtype), jnp.sum(dupdate, rows)
  return dx.astype(x.dtype), dscale, jnp.sum(gradient, rows), of_added


def _drop(x, kept, keep):
  """Returns x [..., D] with dropout, as `dropout.drop` does."""
  if kept is None:
    return x
  chosen = normalisation_kernels.unpack(kept).reshape(x.shape)
  return dropout.scale_kept(x, chosen, keep)
