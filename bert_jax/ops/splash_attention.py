"""Attention as jax's own kernels for TPUs, which skip keys beyond a window.

Splash attention (`jax.experimental.pallas.ops.tpu.splash_attention`) keeps no array
of all pairs of tokens, and reads only blocks of keys that a block of queries can
see. It has no dropout. Sizes as in `model/encoder.py`.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from bert_jax.ops.attention_kernels import number_tokens
from bert_jax.ops.attention_tiling import LANES

_MOST = 8192  # tokens of the longest row that was compiled
# Queries, and keys, that are multiplied at a time. Smaller blocks skip more of the
# keys beyond a window, but each takes a third of a microsecond to start.
_BLOCK, _BLOCK_NEAR = 512, 256


def unsupported(length: int, head_size: int) -> str | None:
  """Says why the kernels do not support a shape; None if they do."""
  if length % LANES or length > _MOST:
    return f'a sequence length of {length}: multiples of {LANES} up to {_MOST:,} work'
  if head_size not in (64, 128):
    return f'a head size of {head_size}: 64 and 128 work'
  return None


def attend(
  qkv: jax.Array,
  input_mask: jax.Array,
  sequence_ids: jax.Array | None,
  window: int | None,
):
  """Computes softmax(q k / sqrt(K)) v, [B, S, H, K].

  Off TPUs, the same kernels run in Pallas' interpreter, slowly, for tests.

  Args:
    qkv: queries, keys and values with their biases, [B, S, 3, H, K].
    input_mask: [B, S], nonzero where there is a token to see.
    sequence_ids: [B, S] or None; tokens see only those with the same id.
    window: the largest distance at which a token is seen; None is any.
  """
  s, h = qkv.shape[1], qkv.shape[3]
  q, k, v = (qkv[:, :, n].swapaxes(1, 2) for n in range(3))  # [B, H, S, K]
  q = q / jnp.sqrt(q.shape[-1]).astype(q.dtype)
  seen, asking = number_tokens(input_mask, sequence_ids).swapaxes(0, 1)

  def on(tpu, q, k, v, ids):
    with jax.enable_x64(False):
      return jax.vmap(_make_kernel(s, h, window, tpu))(q, k, v, ids)

  # Depends on the platform that is compiled for, even if it is absent here.
  mixed = jax.lax.platform_dependent(
    *(q, k, v, splash.SegmentIds(asking, seen)),
    tpu=functools.partial(on, True),
    default=functools.partial(on, False),
  )
  return mixed.swapaxes(1, 2)


@functools.cache
def _make_kernel(length, heads, window, tpu):
  most = _BLOCK if window is None else _BLOCK_NEAR
  block = next(n for n in (most, 256, LANES) if length % n == 0)
  names = 'q kv q_dkv kv_dkv kv_dkv_compute q_dq kv_dq'.split()
  sizes = splash.BlockSizes(**{f'block_{name}': block for name in names})
  shape, mask = (length, length), splash.FullMask((length, length))
  if window is not None:
    mask = splash.LocalMask(shape, (window, window), 0)
  with jax.ensure_compile_time_eval():
    return splash.make_splash_mha_single_device(
      splash.MultiHeadMask([mask] * heads),
      block_sizes=sizes,
      interpret=not tpu,
    )
