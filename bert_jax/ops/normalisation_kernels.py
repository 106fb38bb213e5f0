"""Residual connections and LayerNorm as two NVIDIA GPU kernels.

y = LayerNorm(x + dropout(update)), or LayerNorm(x). They read each activation
once, forward and backward, where XLA needs two or three passes, one for the
sums of each row, and others for dropout, the sum and the gradient of the bias
of the update. Everything is computed in float32, and nothing is added up in an
order that may change.

Which numbers dropout keeps is drawn beforehand and read as one bit each. Bit j
of byte (i, d) belongs to row 8 i + j, so that a thread has a column of a byte.

Triton's arrays have powers of two elements: other D are cut into pieces of
equal sizes, such as 3 x 256 for D = 768. Sizes: N rows of D.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from bert_jax.ops import dropout, kept_bits, triton_calls

F32 = jnp.float32


class _Size(NamedTuple):
  """How a kernel is divided, for rows in one piece or in several."""

  block: int  # numbers in the rows that a program has in registers; 1 is a row
  warps: int  # of a program; a power of two
  programs: int = 0  # which add up parameters' gradients, each for its blocks


# Rows in pieces are a block each, so that each thread has the same columns of
# all rows: sums over rows then need no other thread's numbers. For 16,384 rows of
# 1,024 numbers in bfloat16 on an H200, a sum with dropout takes 42 us forward and
# 41 backward; alone, 21 and 32, which XLA needs 32 and 71 for.
FORWARD, FORWARD_PIECES = _Size(2048, 4), _Size(1, 2)
BACKWARD, BACKWARD_PIECES = _Size(2048, 4, 528), _Size(1, 1, 1056)

_MOST_WIDTH = 1024  # of a piece
_LEAST_WIDTH = 64
_MOST_PIECES = 8
_MOST_SIZE = 4096  # of D, for whose sums there are registers
_BITS = 8  # of a byte, see `pack`


def supports(x: jax.Array) -> bool:
  """Returns whether the kernels can normalise x [..., D] here."""
  size = x.shape[-1]
  width = _width(size)
  pieces = width >= _LEAST_WIDTH and size <= min(
    _MOST_PIECES * width, _MOST_SIZE
  )
  return pieces and triton_calls.can_read(x)


def supports_sum(x: jax.Array, update: jax.Array) -> bool:
  """Returns whether they can normalise the sum of two arrays [..., D] here."""
  fits = x.shape == update.shape and x.dtype == update.dtype
  return fits and supports(x) and x.size // x.shape[-1] % _BITS == 0


def draw_kept(key: jax.Array, shape: tuple[int, ...], keep: int):
  """Returns which numbers [..., D] are kept, as `pack` does.

  With a threefry key they are those of `dropout.drop`.

  Args:
    keep: how many of 256 numbers are kept.
  """
  if dropout.is_threefry(key):
    return pack(dropout.draw(key, shape) < keep)
  bytes_shape = math.prod(shape[:-1]) // _BITS, shape[-1]
  return kept_bits.draw(key, bytes_shape, 'uint8', keep)


def pack(kept: jax.Array):
  """Returns which numbers are kept, bool [..., D], as uint8 [N / 8, D]."""
  bits = kept.reshape(-1, _BITS, kept.shape[-1]).astype(jnp.uint8)
  return functools.reduce(
    jnp.bitwise_or, (bits[:, j] << j for j in range(_BITS))
  )


def unpack(kept: jax.Array):
  """Returns the argument of `pack`, as [N, D]."""
  place = jnp.arange(_BITS, dtype=jnp.uint8)[None, :, None]
  return (kept[:, None] >> place & 1).reshape(-1, kept.shape[-1]) != 0


# Traced once for all layers of a program: that takes 20 ms.
@functools.partial(
  jax.jit,
  static_argnames=('keep', 'epsilon', 'dtype', 'make_params'),
  inline=True,
)
def forward(
  x: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  update: jax.Array | None = None,
  kept: jax.Array | None = None,
  *,
  keep: int = 256,
  epsilon: float,
  dtype: str,
  make_params: Callable | None = None,
):
  """Returns (y, mean, inverse, total).

  These are [..., D]; [..., 1], of each row; 1 / standard deviation, [..., 1]; and
  what was normalised, like x: x itself if nothing is added.

  Args:
    x: [..., D], float32 or bfloat16.
    scale, bias: [D].
    update: added to x before it is normalised, [..., D], like x.
    kept: of the update, uint8 [N / 8, D] from `pack`; None without dropout.
    keep: of how many 256 numbers of the update dropout keeps.
    dtype: of y; mean and inverse are float32.
    make_params: of Triton; None runs the kernel in Pallas' interpreter.
  """
  n, d = x.size // x.shape[-1], x.shape[-1]
  size = FORWARD if _width(d) == d else FORWARD_PIECES
  rows = _count_rows(n, d, size)
  own = pl.BlockSpec((rows, d), lambda i: (i, 0))
  one = pl.BlockSpec((rows,), lambda i: (i,))
  whole = pl.BlockSpec((d,), lambda i: (0,))
  inputs = {'x': x.reshape(n, d), 'scale': scale, 'bias': bias}
  in_specs = [own, whole, whole]
  outputs = {'y': jax.ShapeDtypeStruct((n, d), dtype)}
  outputs |= dict.fromkeys(('mean', 'inverse'), jax.ShapeDtypeStruct((n,), F32))
  out_specs = [own, one, one]
  if update is not None:
    inputs['update'] = update.reshape(n, d)
    in_specs.append(own)
    outputs['total'] = jax.ShapeDtypeStruct((n, d), x.dtype)
    out_specs.append(own)
    if kept is not None:
      inputs['kept'] = kept
      in_specs.append(pl.BlockSpec((None, d), lambda i: (i * rows // _BITS, 0)))
  y, mean, inverse, *total = triton_calls.call(
    triton_calls.by_name(
      functools.partial(_forward, epsilon, keep), *inputs, *outputs
    ),
    make_params,
    size.warps,
    grid=(n // rows,),
    in_specs=in_specs,
    out_specs=out_specs,
    out_shape=list(outputs.values()),
    name='normalise_forward',
  )(*inputs.values())
  each = *x.shape[:-1], 1
  return (
    y.reshape(x.shape),
    mean.reshape(each),
    inverse.reshape(each),
    total[0].reshape(x.shape) if total else x,
  )


@functools.partial(
  jax.jit, static_argnames=('keep', 'added', 'make_params'), inline=True
)
def backward(
  total: jax.Array,
  mean: jax.Array,
  inverse: jax.Array,
  scale: jax.Array,
  gradient: jax.Array,
  kept: jax.Array | None = None,
  *,
  keep: int = 256,
  added: bool = False,
  make_params: Callable | None = None,
):
  """Returns the gradients of x, of scale and bias, and of what is added.

  The latter is None if nothing is added, otherwise the gradients of the update
  and of its bias: of x + dropout(update + bias). Gradients of activations have
  x's type, those of parameters are float32 [D].

  Args:
    total, mean, inverse, scale, kept, keep, make_params: as in `forward`.
    gradient: of y, [..., D].
    added: whether there was an update.
  """
  n, d = total.size // total.shape[-1], total.shape[-1]
  size = BACKWARD if _width(d) == d else BACKWARD_PIECES
  rows = _count_rows(n, d, size)
  programs = min(size.programs, n // rows)
  inputs = {
    'x': total.reshape(n, d),
    'mean': mean.reshape(n),
    'inverse': inverse.reshape(n),
    'scale': scale,
    'gradient': gradient.reshape(n, d),
  }
  if kept is not None:
    inputs['kept'] = kept
  sums = 3 if added else 2
  outputs = {
    'sums': jax.ShapeDtypeStruct((programs, sums, d), F32),
    'dx': jax.ShapeDtypeStruct((n, d), total.dtype),
  }
  if kept is not None:
    outputs['dupdate'] = outputs['dx']
  whole = [pl.BlockSpec((n, d), lambda i: (0, 0))] * (len(outputs) - 1)
  found, dx, *dupdate = triton_calls.call(
    triton_calls.by_name(
      functools.partial(_backward, rows, programs, keep), *inputs, *outputs
    ),
    make_params,
    _count_warps(d, size),
    grid=(programs,),
    out_specs=[pl.BlockSpec((None, sums, d), lambda i: (i, 0, 0)), *whole],
    out_shape=list(outputs.values()),
    name='normalise_backward',
  )(*inputs.values())
  dx, *dupdate = (x.reshape(total.shape) for x in (dx, *dupdate))
  dscale, dbias, *dadded = jnp.sum(found, 0)
  of_added = (dupdate[0] if dupdate else dx, dadded[0]) if added else None
  return dx, dscale, dbias, of_added


def _count_rows(n, d, size):
  """Returns the rows of a block: a power of two that divides n."""
  most = min(_BITS, max(1, size.block // d))  # of one byte of `kept`
  return math.gcd(n, most)


def _count_warps(d, size):
  """Returns the warps of a program that adds up gradients.

  Rows in pieces get twice as many each time that D doubles from 1,024 on: a
  thread has three sums of its columns, and at most 255 registers.
  """
  if _width(d) == d:
    return size.warps
  return size.warps * 2 ** max(0, (d // 512).bit_length() - 1)


def _width(d):
  """Returns the size of the pieces of a row: a power of two that divides d."""
  return math.gcd(d, _MOST_WIDTH)


def _pieces(d):
  """Returns slices that make up d."""
  width = _width(d)
  return [slice(i, i + width) for i in range(0, d, width)]


def _forward(epsilon, keep, refs):
  """Normalises a block of rows.

  Args:
    refs: x, y and maybe update, total, [rows, D]; scale, bias and maybe kept,
      [D]; mean, inverse, [rows].
  """
  x, y, update, kept = map(refs.get, ('x', 'y', 'update', 'kept'))
  rows, d = x.shape
  pieces = _pieces(d)
  parts = [x[:, at].astype(F32) for at in pieces]
  if update is not None:
    first = pl.program_id(0) * rows
    for n, at in enumerate(pieces):
      more = update[:, at].astype(F32)
      if kept is not None:
        more = _drop(more, kept[at], first, keep)
      part = (parts[n] + more).astype(x.dtype)
      refs['total'][:, at] = part
      parts[n] = part.astype(F32)
  middle = _sum_rows(parts) / d
  # Rounding may make it slightly negative.
  variance = _sum_rows([part * part for part in parts]) / d - middle * middle
  factor = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
  refs['mean'][...], refs['inverse'][...] = middle, factor
  for at, part in zip(pieces, parts, strict=True):
    scale, bias = (refs[x][at].astype(F32)[None] for x in ('scale', 'bias'))
    value = (part - middle[:, None]) * (factor[:, None] * scale) + bias
    y[:, at] = value.astype(y.dtype)


def _backward(rows, programs, keep, refs):
  """Computes the gradients of every programs-th block of rows.

  Args:
    rows: in a block.
    refs: x, gradient, dx and maybe dupdate, [N, D]; mean, inverse, [N]; scale,
      [D]; sums, the gradients of scale, bias and, if it is wanted, of the
      update's bias, [2 or 3, D]; maybe kept, [N / 8, D].
  """
  x, gradient, dx, dupdate = map(refs.get, ('x', 'gradient', 'dx', 'dupdate'))
  mean, inverse, scale = refs['mean'], refs['inverse'], refs['scale']
  sums, kept = refs['sums'], refs.get('kept')
  n, d = x.shape
  pieces, first = _pieces(d), pl.program_id(0)
  scales = [scale[at].astype(F32)[None] for at in pieces]

  def add(i, found):
    start = (first + i * programs) * rows
    own = pl.ds(start, rows)
    middle, factor = mean[own][:, None], inverse[own][:, None]
    centred = [x[own, at].astype(F32) - middle for at in pieces]
    grads = [gradient[own, at].astype(F32) for at in pieces]
    moved = [grad * one for grad, one in zip(grads, scales, strict=True)]
    # As in the plain code: two arrays, each times a scalar per row, plus a
    # third scalar per row.
    both = [a * b for a, b in zip(moved, centred, strict=True)]
    along = -(factor * factor * factor) * _sum_rows(both)[:, None] / d
    level = factor * _sum_rows(moved)[:, None] / d
    terms = [[a * (b * factor) for a, b in zip(grads, centred, strict=True)]]
    terms.append(grads)
    of_update = []
    for at, a, b in zip(pieces, moved, centred, strict=True):
      one = a * factor + b * along - level
      dx[own, at] = one.astype(dx.dtype)
      if dupdate is not None:
        one = _drop(one, kept[start // _BITS, at], start, keep)
        dupdate[own, at] = one.astype(dupdate.dtype)
      of_update.append(one)
    terms.append(of_update)
    return jax.tree.map(
      lambda a, b: a + jnp.sum(b, 0), found, terms[: sums.shape[0]]
    )

  zeros = [jnp.zeros(one.shape[1], F32) for one in scales]
  blocks = (n // rows - first + programs - 1) // programs
  found = jax.lax.fori_loop(0, blocks, add, [zeros] * sums.shape[0])
  for i, parts in enumerate(found):
    for at, part in zip(pieces, parts, strict=True):
      sums[i, at] = part


def _drop(x, kept, first, keep):
  """Returns x [rows, w] with dropout.

  Args:
    kept: bits of the rows, uint8 [w].
    first: number of x's first row; the rows share the bytes.
    keep: as in `forward`.
  """
  row = jax.lax.broadcasted_iota(jnp.int32, (x.shape[0], 1), 0)
  bits = kept.astype(jnp.int32)[None] >> (first % _BITS + row)
  return jnp.where(bits & 1 != 0, x * (256 / keep), 0.0)


def _sum_rows(parts):
  """Returns the sum of each row of its pieces, [rows]; they are added first."""
  return jnp.sum(functools.reduce(jnp.add, parts), 1)
