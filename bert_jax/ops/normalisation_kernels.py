"""LayerNorm as two NVIDIA GPU kernels (Pallas through Triton).

They read each activation once, forward and backward, where XLA needs two or
three passes, one for the sums of each row. Everything is computed in float32,
and nothing is added up in an order that may change.

Triton's arrays have powers of two elements: other D are cut into pieces of
equal sizes, such as 3 x 256 for D = 768. Sizes: N rows of D.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

F32 = jnp.float32

# A program holds a block of rows in its registers; blocks and warps are powers of
# two. For 16,384 rows in bfloat16 on an H200, these take 21 us forward and 32
# backward with D = 1024, 16 and 26 with D = 768; XLA 32 and 71 with D = 1024.
FORWARD_BLOCK = 2048  # numbers in a block: 2 rows of 1024
BACKWARD_BLOCK = 2048
FORWARD_WARPS = 2
BACKWARD_WARPS = 4
# The parameters' gradients are added up within a program, then over programs.
# If blocks have one row, more programs are needed to keep the memory busy.
BACKWARD_PROGRAMS = 528
BACKWARD_PROGRAMS_OF_ROWS = 1056

_MOST_WIDTH = 1024  # of a piece
_LEAST_WIDTH = 64
_MOST_PIECES = 8
_MOST_SIZE = 4096  # of D, for whose sums there are registers


def supports(x: jax.Array) -> bool:
  """Returns whether the kernels can normalise x [..., D] here."""
  size, mesh = x.shape[-1], jax.sharding.get_abstract_mesh()
  width = _width(size)
  pieces = width >= _LEAST_WIDTH and size <= min(
    _MOST_PIECES * width, _MOST_SIZE
  )
  # Kernels cannot be partitioned automatically, see `train/device_rows.py`.
  by_hand = set(mesh.manual_axes) == set(mesh.axis_names)
  # Triton's offsets are 32 bits, and would wrap.
  return pieces and by_hand and 0 < x.size < 2**31


def choose(kernel: Callable, plain: Callable, *arrays: jax.Array):
  """Returns kernel(*arrays) on CUDA and plain(*arrays) elsewhere.

  Both take x first, as `forward` and `backward` do. What the kernels do not
  support is plain on CUDA, too, as is all with a jax that has no Triton.
  """
  if not supports(arrays[0]):
    return plain(*arrays)
  try:
    # Imported late: jax has announced its removal.
    from jax.experimental.pallas import triton
  except ImportError:
    return plain(*arrays)
  # Depends on the platform that is compiled for, even if it is absent here.
  return jax.lax.platform_dependent(
    *arrays,
    cuda=functools.partial(kernel, make_params=triton.CompilerParams),
    default=plain,
  )


# Traced once for all layers of a program: that takes 20 ms.
@functools.partial(
  jax.jit, static_argnames=('epsilon', 'dtype', 'make_params'), inline=True
)
def forward(
  x: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  *,
  epsilon: float,
  dtype: str,
  make_params: Callable | None = None,
):
  """Returns (y [..., D], mean [..., 1], inverse deviation [..., 1]).

  Args:
    x: [..., D], float32 or bfloat16.
    scale, bias: [D].
    dtype: of y; the others are float32.
    make_params: of Triton; None runs the kernel in Pallas' interpreter.
  """
  n, d = x.size // x.shape[-1], x.shape[-1]
  rows = _count_rows(n, d, FORWARD_BLOCK)
  own = pl.BlockSpec((rows, d), lambda i: (i, 0))
  one = pl.BlockSpec((rows,), lambda i: (i,))
  whole = pl.BlockSpec((d,), lambda i: (0,))
  y, mean, inverse = _call(
    functools.partial(_forward, epsilon),
    make_params and make_params(num_warps=FORWARD_WARPS),
    grid=(n // rows,),
    in_specs=[own, whole, whole],
    out_specs=[own, one, one],
    out_shape=[
      jax.ShapeDtypeStruct((n, d), dtype),
      *[jax.ShapeDtypeStruct((n,), F32)] * 2,
    ],
    name='normalise_forward',
  )(x.reshape(n, d), scale, bias)
  each = *x.shape[:-1], 1
  return y.reshape(x.shape), mean.reshape(each), inverse.reshape(each)


@functools.partial(jax.jit, static_argnames='make_params', inline=True)
def backward(
  x: jax.Array,
  mean: jax.Array,
  inverse: jax.Array,
  scale: jax.Array,
  gradient: jax.Array,
  *,
  make_params: Callable | None = None,
):
  """Returns the gradients of x, in its type, and of scale and bias, float32.

  Args:
    x, scale, make_params: as in `forward`, whose results are mean and inverse.
    gradient: of y, [..., D].
  """
  n, d = x.size // x.shape[-1], x.shape[-1]
  rows = _count_rows(n, d, BACKWARD_BLOCK)
  most = BACKWARD_PROGRAMS if rows > 1 else BACKWARD_PROGRAMS_OF_ROWS
  programs = min(most, n // rows)
  part = pl.BlockSpec((None, d), lambda i: (i, 0))
  dx, dscale, dbias = _call(
    functools.partial(_backward, rows, programs),
    make_params and make_params(num_warps=BACKWARD_WARPS),
    grid=(programs,),
    out_specs=[pl.BlockSpec((n, d), lambda i: (0, 0)), part, part],
    out_shape=[
      jax.ShapeDtypeStruct((n, d), x.dtype),
      *[jax.ShapeDtypeStruct((programs, d), F32)] * 2,
    ],
    name='normalise_backward',
  )(
    *(x.reshape(n, d), mean.reshape(n), inverse.reshape(n)),
    *(scale, gradient.reshape(n, d)),
  )
  return dx.reshape(x.shape), jnp.sum(dscale, 0), jnp.sum(dbias, 0)


def _call(kernel, params, **options):
  """Returns `pl.pallas_call`, interpreted if there are no params."""
  how = {'compiler_params': params} if params else {'interpret': True}

  def call(*arrays):
    # With jax_enable_x64, loops have int64 counters.
    with jax.enable_x64(False):
      return pl.pallas_call(kernel, **how, **options)(*arrays)

  return call


def _count_rows(n, d, block):
  """Returns the rows of a block: a power of two that divides n.

  If rows are cut, it is one row, so that each thread has the same columns of
  all rows: sums over rows then need no other thread's numbers.
  """
  return math.gcd(n, max(1, block // d)) if _width(d) == d else 1


def _width(d):
  """Returns the size of the pieces of a row: a power of two that divides d."""
  return math.gcd(d, _MOST_WIDTH)


def _pieces(d):
  """Returns slices that make up d."""
  width = _width(d)
  return [slice(i, i + width) for i in range(0, d, width)]


def _forward(epsilon, x, scale, bias, y, mean, inverse):
  """Normalises a block of rows.

  Args:
    x, y: [rows, D].
    scale, bias: [D].
    mean, inverse: [rows].
  """
  d = x.shape[1]
  pieces = _pieces(d)
  parts = [x[:, at].astype(F32) for at in pieces]
  middle = _sum_rows(parts) / d
  # Rounding may make it slightly negative.
  variance = _sum_rows([part * part for part in parts]) / d - middle * middle
  factor = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
  mean[...], inverse[...] = middle, factor
  for at, part in zip(pieces, parts, strict=True):
    slope = factor[:, None] * scale[at].astype(F32)[None]
    value = (part - middle[:, None]) * slope + bias[at].astype(F32)[None]
    y[:, at] = value.astype(y.dtype)


def _backward(
  rows, programs, x, mean, inverse, scale, gradient, dx, dscale, dbias
):
  """Computes the gradients of every programs-th block of rows.

  Args:
    rows: in a block.
    x, gradient, dx: [N, D].
    mean, inverse: [N].
    scale, dscale, dbias: [D].
  """
  n, d = x.shape
  pieces, first = _pieces(d), pl.program_id(0)
  scales = [scale[at].astype(F32)[None] for at in pieces]

  def add(i, sums):
    own = pl.ds((first + i * programs) * rows, rows)
    middle, factor = mean[own][:, None], inverse[own][:, None]
    centred = [x[own, at].astype(F32) - middle for at in pieces]
    grads = [gradient[own, at].astype(F32) for at in pieces]
    moved = [grad * one for grad, one in zip(grads, scales, strict=True)]
    # As in the plain code: two arrays, each times a scalar per row, plus a
    # third scalar per row.
    both = [a * b for a, b in zip(moved, centred, strict=True)]
    along = -(factor * factor * factor) * _sum_rows(both)[:, None] / d
    level = factor * _sum_rows(moved)[:, None] / d
    for at, a, b in zip(pieces, moved, centred, strict=True):
      dx[own, at] = (a * factor + b * along - level).astype(dx.dtype)
    of_scale = [a * (b * factor) for a, b in zip(grads, centred, strict=True)]
    return jax.tree.map(lambda a, b: a + jnp.sum(b, 0), sums, (of_scale, grads))

  zeros = [jnp.zeros(one.shape[1], F32) for one in scales]
  blocks = (n // rows - first + programs - 1) // programs
  found = jax.lax.fori_loop(0, blocks, add, (zeros, zeros))
  for out, sums in zip((dscale, dbias), found, strict=True):
    for at, part in zip(pieces, sums, strict=True):
      out[at] = part


def _sum_rows(parts):
  """Returns the sum of each row of its pieces, [rows]; they are added first."""
  return jnp.sum(functools.reduce(jnp.add, parts), 1)
