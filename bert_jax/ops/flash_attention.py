"""Attention as two NVIDIA GPU kernels (Pallas through Triton), with masks.

Scores and probabilities exist only in registers, for a block of queries and of
keys at a time (Dao, arXiv 2307.08691). Dropout is the plain implementation's with
a threefry key, bit for bit. Which weights are kept is drawn beforehand and read by
both kernels as one bit per weight, a 32nd of the scores in float32. Nothing is
added up in an order that may change. Sizes as in `model/encoder.py`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from bert_jax import errors
from bert_jax.ops import dropout, dropout_rate, kept_bits, triton_calls
from bert_jax.ops.attention_kernels import dot, number_tokens
from bert_jax.ops.elementwise import add_bias

F32 = jnp.float32

BLOCK = 64  # queries, and keys, that are multiplied at a time
# Queries per step of the loop for the gradients of keys and values. With 64,
# registers suffice for two programs per multiprocessor instead of three.
_FEW = 32
_MOST = 8192  # tokens of the longest row that is supported
_WORD = 32  # bits
_HEAD_SIZES = 16, 32, 64, 128
# Blocks that Triton loads in advance. For heads of 128, three would need 106 KiB of
# shared memory; GPUs with compute capability 8.6, 8.9 and 12.0 have 99.
_STAGES, _STAGES_OF_128 = 3, 2
_WARPS = 4  # of a program
_LOG2E = float(np.log2(np.e))


@dataclasses.dataclass(frozen=True)
class _Call:
  """What a kernel is compiled for, besides shapes."""

  keep: int  # probability in 256ths that a weight is kept; 256: no dropout
  mask_value: float  # added to the scores of masked keys, at least -10,000
  causal: bool  # queries do not see later keys
  by_key: bool  # all queries see the same keys, those of id 0
  window: int | None  # the largest distance at which a query sees a key


def unsupported(
  length: int, head_size: int, heads: int = 1, rows: int = 1
) -> str | None:
  """Says why the kernels do not support a shape; None if they do."""
  if length % BLOCK or length > _MOST:
    return f'a sequence length of {length}: multiples of {BLOCK} up to {_MOST:,} work'
  if head_size not in _HEAD_SIZES:
    sizes = ', '.join(map(str, _HEAD_SIZES))
    return f'a head size of {head_size}: {sizes} work'
  # Beyond, Triton needs offsets of 64 bits, which were not tried.
  most = max(3 * head_size, length // _WORD)
  if rows * length * heads * most >= 2**31:
    return f'{rows:,} rows of {length} at once: phases.accumulate splits them'
  return None


def attend(
  qkv: jax.Array,
  bias: jax.Array | None,
  input_mask: jax.Array,
  key: jax.Array | None,
  *,
  rate: float,
  mask_value: float,
  causal: bool = False,
  sequence_ids: jax.Array | None = None,
  window: int | None = None,
):
  """Computes dropout(softmax(q k / sqrt(K))) v, [B, S, H, K].

  Off GPUs, the same kernels run in Pallas' interpreter, slowly, for tests.

  The arguments are those of `fused_attention.attend`; with a key that is not
  threefry's, `kept_bits` draws, and a mask_value below -10,000 is -10,000. No bias
  is None; with a window, blocks that are further away are not read.
  """
  b, s, _, h, k = qkv.shape
  if problem := unsupported(s, k, h, b):
    raise errors.UserError(
      f'flash attention cannot do {problem}; compute.attention=xla can.'
    )
  keep = 256 if key is None else dropout_rate.count_kept(rate)
  tokens = number_tokens(input_mask, sequence_ids)
  kept = None if keep == 256 else draw_kept(key, (b, h, s), keep)
  by_key = sequence_ids is None and not causal and window is None
  # Lower values would leave no digits to the sums of a query that sees no key.
  least = max(mask_value, -1e4)
  call = _Call(keep, least, causal, by_key, window)
  return _attend(qkv, bias, tokens, kept, call)


def draw_kept(key: jax.Array, shape: tuple[int, int, int], keep: int):
  """Returns which weights dropout keeps, uint32 words [B, H, S / 32, S].

  Bit 8 a + c of the word at (..., 2 j + i, q) is 1 if key 64 j + 16 a + 8 i + c
  is kept for query q. In the products of tensor cores, all rows of a thread are
  equal modulo 8, and its columns have two values modulo 8: with this order of bits
  a thread needs few words, and few different shifts.

  Args:
    shape: (B, H, S).
    keep: probability of keeping a weight, in 256ths.
  """
  b, h, s = shape
  words = b, h, s // _WORD, s
  if not dropout.is_threefry(key):
    return kept_bits.draw(key, words, keep)
  kept = dropout.draw(key, (b, h, s, s)) < keep
  kept = kept.reshape(b, h, s // BLOCK, 4, 2, 8, s).astype(jnp.uint32)
  place = jnp.arange(_WORD, dtype=jnp.uint32).reshape(1, 1, 1, 4, 1, 8, 1)
  return jnp.sum(kept << place, (3, 5), jnp.uint32).reshape(words)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(qkv, bias, tokens, kept, call: _Call):
  return _attend_forward(qkv, bias, tokens, kept, call)[0]


def _attend_forward(qkv, bias, tokens, kept, call):
  if bias is not None:
    qkv = add_bias(qkv, bias, True)
  b, s, _, h, k = qkv.shape
  outputs = {'out': ((b, s, h, k), qkv.dtype), 'sums': ((b, h, s), F32)}
  arrays = {'tokens': tokens, 'qkv': qkv, 'kept': kept}
  mixed, sums = _run(_forward, arrays, outputs, call)
  return mixed, (qkv, bias, tokens, kept, mixed, sums)


def _attend_backward(call, residuals, grad):
  qkv, bias, tokens, kept, mixed, sums = residuals
  b, s, _, h, k = qkv.shape
  # The gradient of a softmax needs sum(gradient x weight) over the keys, which
  # is the sum of gradient x output over a head.
  inner = jnp.sum(grad.astype(F32) * mixed.astype(F32), -1)
  arrays = {'tokens': tokens, 'qkv': qkv, 'kept': kept, 'grad': grad}
  arrays |= {'sums': sums, 'inner': inner}
  outputs = {'d_qkv': (qkv.shape, qkv.dtype)}
  if bias is None:
    (d_qkv,) = _run(_backward, arrays, outputs, call, parts=2)
    return d_qkv, None, None, None
  outputs['d_bias'] = (b, s // BLOCK, h, 3, k), F32
  d_qkv, d_bias = _run(_backward, arrays, outputs, call, parts=2)
  d_bias = jnp.sum(d_bias, (0, 1)).swapaxes(0, 1).astype(bias.dtype)
  return d_qkv, d_bias, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _run(kernel, arrays, outputs, call, parts=1):
  """Runs a kernel for each row, head and block.

  Args:
    arrays: by the name of the kernel's argument; None are left out.
    outputs: (shape, dtype) by the name of the kernel's argument.
    parts: programs of each block, next to each other in the grid.
  """
  arrays = {name: x for name, x in arrays.items() if x is not None}
  b, s, _, h, k = arrays['qkv'].shape
  # A step sees its row and head and, of outputs, its block. The blocks of a
  # head run next to each other, and find its keys in the GPU's cache.
  specs = {
    'tokens': ((None, 2, s), lambda i, h, b: (b, 0, 0)),
    'qkv': ((None, s, 3, None, k), lambda i, h, b: (b, 0, 0, h, 0)),
    'kept': ((None, None, s // _WORD, s), lambda i, h, b: (b, h, 0, 0)),
    'grad': ((None, s, None, k), lambda i, h, b: (b, 0, h, 0)),
    'inner': ((None, s, None), lambda i, h, b: (b, 0, h)),
    'sums': ((None, None, s), lambda i, h, b: (b, h, 0)),
    'out': ((None, BLOCK, None, k), lambda i, h, b: (b, i // parts, h, 0)),
    'd_qkv': (
      (None, BLOCK, 3, None, k),
      lambda i, h, b: (b, i // parts, 0, h, 0),
    ),
    'd_bias': (
      (None, None, None, 3, k),
      lambda i, h, b: (b, i // parts, h, 0, 0),
    ),
  }

  names = *arrays, *outputs

  def body(*refs):
    kernel(call, dict(zip(names, refs, strict=True)))

  # A block more at a time than there are would only take memory.
  stages = min(_STAGES_OF_128 if k == 128 else _STAGES, s // BLOCK)
  return triton_calls.call(
    *(body, list(arrays.values()), _WARPS, stages),
    grid=(parts * s // BLOCK, h, b),
    in_specs=[pl.BlockSpec(*specs[name]) for name in arrays],
    out_specs=[pl.BlockSpec(*specs[name]) for name in outputs],
    out_shape=[jax.ShapeDtypeStruct(*x) for x in outputs.values()],
    name=f'flash{kernel.__name__}',
  )


def _forward(call, refs):
  """Computes the output of a block of queries, and its softmax's sums.

  Args:
    refs: tokens, int32 [2, S], ids of keys, of queries; equal ids see each
      other. qkv, [S, 3, K]. out, [64, K]. sums, float32 [S], log2 of keep x sum
      of exp(scores) of each query. Maybe kept, [S / 32, S], see `draw_kept`.
  """
  tokens, qkv, out = refs['tokens'], refs['qkv'], refs['out']
  sums, kept = refs['sums'], refs.get('kept')
  own = _block(pl.program_id(0))
  queries = qkv[own, 0]

  def add(j, carry):
    most, total, mixed = carry
    keys = _block(j)
    scores = _score(queries, qkv[keys, 1], _mask(call, tokens, own, keys))
    new = jnp.maximum(most, jnp.max(scores, 1))
    weights = jnp.exp2(scores - new[:, None])
    shrink = jnp.exp2(most - new)
    dropped = _drop(weights, kept, j, own, 1).astype(queries.dtype)
    return (
      new,
      total * shrink + jnp.sum(weights, 1),
      mixed * shrink[:, None] + dot(dropped, qkv[keys, 2], 1, 0),
    )

  most = jnp.full(BLOCK, -jnp.inf, F32)
  nothing = jnp.zeros(out.shape, F32)
  carry = most, jnp.zeros(BLOCK, F32), nothing
  near = _near(call, pl.program_id(0), BLOCK, tokens.shape[1])
  most, total, mixed = jax.lax.fori_loop(*near, add, carry)
  total = call.keep / 256 * total  # kept weights are divided by keep
  out[...] = (mixed * (1 / total)[:, None]).astype(out.dtype)
  sums[own] = most + jnp.log2(total)


def _backward(call, refs):
  """Computes the gradients of a block: of keys and values, or of queries.

  Each block has two programs, one for keys and values and one for queries: a
  single one would need half as many registers again.

  Args:
    refs: as `_forward`'s, but instead of `out`: grad, gradient of the output, [S,
      K]; inner, sum(gradient x output) of each query, float32 [S]; d_qkv,
      gradient of qkv, [64, 3, K]; maybe d_bias, float32 sums over tokens, [3, K].
  """
  tokens, qkv, grad = refs['tokens'], refs['qkv'], refs['grad']
  sums, inner, kept = refs['sums'], refs['inner'], refs.get('kept')
  put = functools.partial(_put, refs['d_qkv'], refs.get('d_bias'))
  i, part = pl.program_id(0) // 2, pl.program_id(0) % 2
  own, dtype, scale = _block(i), qkv.dtype, _scale(qkv)
  length = tokens.shape[1]
  zero = jnp.zeros((BLOCK, qkv.shape[-1]), F32)

  @pl.when(part == 0)
  def _():
    keys, values = qkv[own, 1], qkv[own, 2]

    def add(j, carry):
      """Adds the terms of a few queries; arrays are [keys, queries]."""
      dk, dv = carry
      at = pl.ds(j * _FEW, _FEW)
      queries, grads = qkv[at, 0], grad[at]
      scores = _score(keys, queries, _mask(call, tokens, at, own).T)
      weights = jnp.exp2(scores - sums[at][None])
      d_weights = _drop(dot(values, grads, 1, 1), kept, i, at, 0)
      d_scores = weights * (d_weights - _share(call, inner[at])[None])
      dropped = _drop(weights, kept, i, at, 0).astype(dtype)
      return (
        dk + dot(d_scores.astype(dtype), queries, 1, 0),
        dv + dot(dropped, grads, 1, 0),
      )

    near = _near(call, i, _FEW, length)
    dk, dv = jax.lax.fori_loop(*near, add, (zero, zero))
    put(1, dk * scale)
    put(2, dv)

  @pl.when(part == 1)
  def _():
    queries, grads = qkv[own, 0], grad[own]
    shift, shared = sums[own][:, None], _share(call, inner[own])[:, None]

    def add(j, dq):
      keys = _block(j)
      mask = _mask(call, tokens, own, keys)
      weights = jnp.exp2(_score(queries, qkv[keys, 1], mask) - shift)
      d_weights = _drop(dot(grads, qkv[keys, 2], 1, 1), kept, j, own, 1)
      d_scores = weights * (d_weights - shared)
      return dq + dot(d_scores.astype(dtype), qkv[keys, 1], 1, 0)

    dq = jax.lax.fori_loop(*_near(call, i, BLOCK, length), add, zero)
    put(0, dq * scale)


def _near(call, i, size, length):
  """Returns the first of the blocks of a size that block i can see, and the end."""
  if call.window is None:
    return 0, length // size
  first = jnp.maximum(i * BLOCK - call.window, 0)
  last = jnp.minimum((i + 1) * BLOCK + call.window, length) - 1
  return jax.lax.div(first, size), jax.lax.div(last, size) + 1


def _put(d_qkv, d_bias, n, found):
  """Writes gradients of queries, keys or values, and their sum, [K]."""
  rounded = found.astype(d_qkv.dtype)
  d_qkv[:, n] = rounded
  if d_bias is None:
    return
  # A product with ones sums columns faster than threads that exchange numbers. A
  # product has 16 rows at the least, so the sum is there 16 times.
  ones = jnp.ones((16, BLOCK), rounded.dtype)
  d_bias[n] = jnp.sum(dot(ones, rounded, 1, 0), 0) * (1 / 16)


def _block(i):
  return pl.ds(i * BLOCK, BLOCK)


def _scale(x):
  """Returns 1 / sqrt(K) for x [..., K]."""
  return 1 / float(np.sqrt(x.shape[-1]))


def _score(rows, columns, mask):
  """Returns masked scores / ln 2: exp2 needs fewer instructions than exp."""
  return dot(rows, columns, 1, 1) * (_LOG2E * _scale(rows)) + mask


def _share(call, inner):
  """Returns what the gradients of a query's weights have in common."""
  return call.keep / 256 * inner  # weights are divided by keep


def _mask(call, tokens, queries, keys):
  """Returns what to add to scores / ln 2, [queries, keys] or [1, keys]."""
  seen = tokens[0, keys][None]
  if call.by_key:
    seen = seen == 0
  else:
    seen = tokens[1, queries][:, None] == seen
  place = functools.partial(jax.lax.broadcasted_iota, jnp.int32, seen.shape)
  if call.causal:
    seen &= place(1) + keys.start <= place(0) + queries.start
  if call.window is not None:
    ahead = place(1) + keys.start - place(0) - queries.start
    seen &= jnp.abs(ahead) <= call.window
  return jnp.where(seen, 0.0, call.mask_value * _LOG2E)


def _drop(x, kept, block, queries, axis):
  """Returns x where dropout keeps the weight, otherwise zero.

  Args:
    x: of a block of keys and of queries; the former are its `axis`.
    kept: [S / 32, S], see `draw_kept`; None keeps all.
    queries: slice of x's queries.
  """
  if kept is None:
    return x
  key = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
  words = (kept[2 * block + i, queries].astype(jnp.int32) for i in range(2))
  first, second = (jnp.expand_dims(x, axis) for x in words)
  word = jnp.where(key & 8 == 0, first, second)
  bit = (key >> 4) * 8 + (key & 7)
  return jnp.where(word & (1 << bit) != 0, x, 0.0)
