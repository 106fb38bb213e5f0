"""LayerNorm, alone or of a residual connection, with a gradient of its own.

Autodiff rounds each term of the gradient to the activations' type before it adds
them; here they are added in float32 and rounded once. NVIDIA GPUs may use
`normalisation_kernels`; whatever they do is here in XLA's operations, too.
"""

import dataclasses
import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.ops import (
  dropout,
  elementwise,
  normalisation_kernels,
  triton_calls,
)


class Update(NamedTuple):
  """What a residual connection adds to its input x: dropout(values + bias)."""

  # [..., D], like x; what `normalisation_kernels.supports_sum` allows.
  values: jax.Array
  bias: jax.Array  # [D]
  # uint8 [N / 8, D] from `normalisation_kernels.pack`, for the N rows of
  # `values`; None turns dropout off.
  kept: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Normalisation:
  """How `normalise` computes: `LayerNorm`'s attributes; `keep` of dropout."""

  epsilon: float
  dtype: str
  kernels: bool = False
  keep: int = 256


class LayerNorm(nn.Module):
  """Normalises the last axis (arXiv 1607.06450); trains `scale` and `bias`."""

  epsilon: float
  dtype: str  # of the result; everything is computed in float32
  kernels: bool = False  # whether NVIDIA GPUs use `normalisation_kernels`

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
  arrays = [x, scale, bias]
  if update:
    values = elementwise.add_bias(update.values, update.bias, True)
    arrays += values, update.kept
  kernel, plain = normalisation_kernels.forward, _plain_forward
  y, mean, inverse, total = _choose(how, kernel, plain, options, *arrays)
  update = update and update._replace(values=None)
  return y, (total, mean, inverse, scale, update)


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


def _plain_forward(
  x, scale, bias, update=None, kept=None, *, epsilon, dtype, keep
):
  """Returns what `normalisation_kernels.forward` does, in XLA's operations."""
  if update is not None:
    x = x + _drop(update, kept, keep)
  wide = x.astype(jnp.float32)
  mean = jnp.mean(wide, -1, keepdims=True)
  # In the same pass as the mean; rounding may make it slightly negative.
  variance = jnp.mean(wide * wide, -1, keepdims=True) - mean * mean
  inverse = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
  ones = (1,) * (x.ndim - 1)
  scale, bias = scale.reshape(*ones, -1), bias.reshape(*ones, -1)
  y = (wide - mean) * (inverse * scale) + bias
  return y.astype(dtype), mean, inverse, x


def _plain_backward(x, mean, inverse, scale, gradient, kept, *, keep, added):
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
