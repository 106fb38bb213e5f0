"""Attention as two TPU kernels (Pallas), with masks and dropout inside.

Scores, probabilities and dropout masks [B, H, S, S] exist only in the TPU's
vector memory; the backward pass recomputes them. All keys of a row fit there,
so no softmax has to be computed in parts. Sizes as in `model/encoder.py`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax import errors
from bert_jax.ops import attention_kernels as kernels
from bert_jax.ops import dropout, dropout_rate
from bert_jax.ops.attention_tiling import F32, LANES, Call

_MAX_LENGTH = 512


def unsupported(
  length: int, heads: int, head_size: int, dtype: Any = 'bfloat16'
) -> str | None:
  """Says why the kernels do not support a shape; None if they do."""
  if length % LANES or length > _MAX_LENGTH:
    return f'a sequence length of {length}: 128, 256, 384 and 512 work'
  if LANES % head_size and head_size % LANES:
    return f'a head size of {head_size}: divisors and multiples of 128 work'
  if heads * head_size % LANES:
    return (
      f'{heads} heads of size {head_size}: their product must be a multiple '
      'of 128'
    )
  # The case that needs most memory: a mask for each query, and dropout.
  call = Call(
    (1, length, heads, head_size), np.dtype(dtype), 128, True, 0.0, True, True
  )
  if not (call.step(False) and call.step(True)):
    return (
      f'heads of size {head_size} in {call.dtype} at a sequence length of '
      f'{length}, which do not fit the vector memory'
    )
  return None


def attend(
  qkv: jax.Array,
  bias: jax.Array,
  input_mask: jax.Array,
  key: jax.Array | None,
  *,
  rate: float,
  mask_value: float,
  causal: bool = False,
  sequence_ids: jax.Array | None = None,
):
  """Computes dropout(softmax(q k / sqrt(K))) v, [B, S, H, K].

  Off TPUs, the same kernels run in Pallas' interpreter, slowly, for tests.

  Args:
    qkv: queries, keys and values without their biases, [B, S, 3, H, K],
      float32 or bfloat16.
    bias: [3, H, K]; the kernel sums its gradient as a side effect.
    input_mask: [B, S], nonzero where there is a token to see.
    key: of the dropout; None turns it off. A threefry key gives the bytes of
      `dropout.draw(key, [B, H, S, S])`, keys before queries; with any other,
      the TPU's generator draws bits.
    rate: dropout rate; 1 - rate is rounded to 256ths, as in `dropout`.
    mask_value: added to the scores of keys that a query does not see.
    causal: whether queries do not see later keys.
    sequence_ids: [B, S] or None; tokens see only those with the same id.
  """
  b, s, _, h, k = qkv.shape
  problem = unsupported(s, h, k, qkv.dtype)
  if problem:
    raise errors.UserError(
      f'fused attention cannot do {problem}; compute.attention=xla can.'
    )
  keep = 256 if key is None else dropout_rate.count_kept(rate)
  call = Call(
    shape=(b, s, h, k),
    dtype=np.dtype(qkv.dtype),
    keep=keep,
    threefry=keep < 256 and dropout.is_threefry(key),
    mask_value=mask_value,
    causal=causal,
    packed=sequence_ids is not None,
  )
  tokens = kernels.number_tokens(input_mask, sequence_ids)
  if keep == 256:
    seeds = jnp.zeros((b, dropout.SEEDS), jnp.int32)
  else:
    seeds = dropout.make_seeds(key, (b, h, s))
  return _attend(
    qkv.reshape(b, s, 3 * h * k),
    bias.reshape(3 * h * k),
    tokens,
    seeds.ravel(),
    call,
  ).reshape(b, s, h, k)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(qkv, bias, tokens, seeds, call: Call):
  """Returns [B, S, H K] of [B, S, 3 H K]."""
  return _attend_forward(qkv, bias, tokens, seeds, call)[0]


def _attend_forward(qkv, bias, tokens, seeds, call):
  qkv = qkv + bias.astype(qkv.dtype)[None, None]
  found = _run(kernels.forward, (qkv,), tokens, seeds, call)
  # The backward pass needs only the type of the bias.
  known = found if call.blocks > 1 else ()
  return found[0], (qkv, bias[:0], tokens, seeds, *known)


def _attend_backward(call, residuals, grad):
  qkv, bias, tokens, seeds, *known = residuals
  given = qkv, grad, *known
  arrays, sums = _run(kernels.backward, given, tokens, seeds, call)
  if arrays.ndim == 4:  # kept separate
    arrays = jnp.concatenate(list(arrays), -1)
  return arrays, jnp.sum(sums, (0, 1)).astype(bias.dtype), None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _run(kernel, arrays, tokens, seeds, call: Call):
  def on(tpu, seeds, tokens, qkv, *grad):
    # With jax_enable_x64, loops have int64 counters, which TPUs lack.
    with jax.enable_x64(False):
      run = _pallas_call(kernel, call, tpu)
      return run(seeds, tokens, qkv, qkv, qkv, *grad)

  # Depends on the platform that is compiled for, even if it is absent here.
  return jax.lax.platform_dependent(
    seeds,
    tokens,
    *arrays,
    tpu=functools.partial(on, True),
    default=functools.partial(on, False),
  )


def _pallas_call(kernel, call: Call, tpu: bool):
  b, s, h, k = call.shape
  width = h * k
  gradient = kernel is kernels.backward
  several = call.blocks > 1
  # Arrays [B, S, H, K].
  moved, products = (7 + several, 5) if gradient else (4, 2)
  step = call.step(gradient)
  rows, lanes, steps = step.rows, step.lanes, width // step.lanes

  def heads(which):
    return pl.BlockSpec(
      (rows, s, lanes), lambda i, j, seeds: (i, 0, which * steps + j)
    )

  def whole(*shape):
    return pl.BlockSpec((rows, *shape), lambda i, j, seeds: (i, 0, 0))

  numbers = 2 * len(call.heads)
  statistics = pl.BlockSpec(
    (rows, lanes // call.lanes, numbers, s), lambda i, j, seeds: (i, j, 0, 0)
  )
  sums_of_step = pl.BlockSpec((1, 1, 3 * width), lambda i, j, seeds: (i, 0, 0))
  bias = pltpu.VMEM((s, LANES if call.one_mask else s), F32)
  sums = pltpu.VMEM((step.groups, s, call.lanes), F32)
  out, out_block = (b, s, width), heads(0)
  if gradient and step.separate:
    out = (3, *out)
    out_block = pl.BlockSpec(
      (3, rows, s, lanes), lambda i, j, seeds: (0, i, 0, j)
    )
  elif gradient:
    # One head's queries, keys and values are not contiguous in a row, so the
    # output block holds whole rows until all heads are done.
    out, out_block = (b, s, 3 * width), whole(s, 3 * width)
  spec = pltpu.PrefetchScalarGridSpec(
    num_scalar_prefetch=1,
    grid=(b // rows, steps),
    in_specs=[
      *(whole(2, s), *map(heads, range(3)), *[heads(0)] * gradient),
      *[heads(0), statistics] * (gradient and several),
    ],
    out_specs=[
      *(out_block, *[sums_of_step] * gradient),
      *[statistics] * (several and not gradient),
    ],
    scratch_shapes=[bias, *[sums, sums] * gradient],
  )
  return pl.pallas_call(
    functools.partial(kernel, call=call, step=step, chip=tpu),
    grid_spec=spec,
    out_shape=[
      jax.ShapeDtypeStruct(shape, dtype)
      for shape, dtype in (
        (out, call.dtype),
        *[((b // rows, 1, 3 * width), F32)] * gradient,
        *[((b, call.groups, numbers, s), F32)] * (several and not gradient),
      )
    ],
    cost_estimate=pl.CostEstimate(
      flops=products * 2 * b * h * s * s * k,
      bytes_accessed=moved * b * s * width * call.dtype.itemsize,
      transcendentals=b * h * s * s,
    ),
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'arbitrary')
    ),
    interpret=not tpu,
    name='attention_backward' if gradient else 'attention_forward',
  )
