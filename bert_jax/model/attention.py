"""Attention without its projections, in five equivalent implementations.

`xla` runs anywhere and keeps arrays [B, H, S, S] for the backward pass;
`recompute` runs anywhere and keeps none (`recomputed_attention`); `fused` uses
our TPU kernels (`fused_attention`), `splash` jax's (`splash_attention`), `flash`
our kernels for NVIDIA GPUs (`flash_attention`).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model import bert_config
from bert_jax.ops import (
  dropout,
  elementwise,
  flash_attention,
  fused_attention,
  recomputed_attention,
  splash_attention,
)


class Tokens(NamedTuple):
  """The features that decide which tokens attend to which."""

  input_mask: jax.Array  # [B, S], 1 for tokens, 0 for padding
  # [B, S] for packed rows, k + 1 in pair k.
  sequence_ids: jax.Array | None = None


def compute_mask(
  tokens: Tokens,
  causal: bool,
  positions: jax.Array | None = None,
  window: int | None = None,
):
  """Returns the attention mask, bool [B, 1, 1 or S or R, S] (from, to).

  Each token attends to the tokens of its row; in a packed row, of its pair; if
  causal, to no later tokens; in a window, to none that is further away.

  Args:
    positions: [B or 1, R] of the tokens that attend; None is all.
    window: distance in tokens; None is any.
  """
  mask = tokens.input_mask[:, None, None, :].astype(bool)  # [B, 1, 1, S]
  places = jnp.arange(mask.shape[-1])[None]
  asking = (places if positions is None else positions)[..., None]
  if causal and positions is None:
    mask = mask & jnp.tri(mask.shape[-1], dtype=bool)[None, None]
  elif causal:
    mask = mask & (asking >= places[None])[:, None]  # [B or 1, 1, R, S]
  if window is not None:
    mask = mask & (jnp.abs(asking - places[None]) <= window)[:, None]
  if tokens.sequence_ids is not None:
    pair = tokens.sequence_ids[:, None]
    own = pair
    if positions is not None:
      own = jnp.take_along_axis(pair, positions[:, None], 2)
    mask = mask & (own[..., None] == pair[:, :, None])  # [B, 1, S or R, S]
  return mask


def attend(
  qkv: jax.Array,
  bias: jax.Array | None,
  tokens: Tokens,
  key: jax.Array,
  config: bert_config.BertConfig,
  sow: Callable[[jax.Array], object] | None = None,
  window: int | None = None,
):
  """Computes dropout(softmax(q k / sqrt(K))) v, [B, S, H, K].

  Args:
    qkv: queries, keys and values without their biases, [B, S, 3, H, K].
    bias: of queries, keys and values, [3, H, K], or None.
    key: of the dropout; None turns it off.
    sow: is given the probabilities [B, H, S, S]; `xla` only.
    window: the furthest key that a query sees, in tokens; None is any.
  """
  if config.reverse:
    return _attend_in_reverse(qkv, bias, tokens, key, config, sow, window)
  options = {
    'rate': config.attention_dropout,
    'mask_value': config.mask_value,
    'causal': config.causal,
    'sequence_ids': tokens.sequence_ids,
  }
  if window is not None:
    options['window'] = window
  ours = {'fused': fused_attention, 'flash': flash_attention}
  if kernels := ours.get(config.attention):
    return kernels.attend(qkv, bias, tokens.input_mask, key, **options)
  if bias is not None:
    qkv = elementwise.add_bias(qkv, bias, config.flat_rows)
  if config.attention == 'splash':  # where `tuning.resolve` allows it
    return splash_attention.attend(qkv, *tokens, window)
  if config.attention == 'recompute':
    call = recomputed_attention.Call(
      rate=config.attention_dropout,
      mask_value=config.mask_value,
      compute_mask=functools.partial(
        compute_mask, causal=config.causal, window=window
      ),
      split_heads=not config.separate_heads,
      window=window,
    )
    return recomputed_attention.attend(qkv, tokens, key, call)
  q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
  seen = compute_mask(tokens, config.causal, window=window)
  return _mix(q, k, v, seen, key, config, sow)


def attend_from(
  q: jax.Array,
  kv: jax.Array,
  positions: jax.Array,
  tokens: Tokens,
  key: jax.Array,
  config: bert_config.BertConfig,
  sow: Callable[[jax.Array], object] | None = None,
  window: int | None = None,
):
  """Computes what `attend` does at some positions, [B, R, H, K].

  As `xla` does, whatever `config.attention` is. Not for causal models.

  Args:
    q: queries of the tokens at the positions, [B, R, 1, H, K].
    kv: keys and values of all tokens, [B, S, 2, H, K].
    positions: [B, R] integers.
  """
  seen = compute_mask(tokens, False, positions, window)
  return _mix(q[:, :, 0], kv[:, :, 0], kv[:, :, 1], seen, key, config, sow)


def _attend_in_reverse(qkv, bias, tokens, key, config, sow, window):
  """Reads from right to left, which is left to right in the reversed row."""

  def flip(x, axes=(1,)):
    return None if x is None else jnp.flip(x, axes)

  mixed = attend(
    flip(qkv),
    bias,
    Tokens(*map(flip, tokens)),
    key,
    dataclasses.replace(config, reverse=False),
    sow and (lambda weights: sow(flip(weights, (2, 3)))),
    window,
  )
  return flip(mixed)


def _mix(q, k, v, seen, key, config, sow):
  q = q / jnp.sqrt(q.shape[-1]).astype(q.dtype)
  scores = jnp.einsum(
    'bqhk,bshk->bhqs', q, k, preferred_element_type=jnp.float32
  )
  # exp of -10000 is 0 in float32.
  scores = scores + jnp.where(seen, 0.0, config.mask_value)
  weights = nn.softmax(scores).astype(v.dtype)  # [B, H, S or R, S]
  if sow is not None:
    sow(weights)
  if key is not None:
    # Drawn with keys before queries, as in the kernels.
    b, h, r, s = weights.shape
    values = dropout.draw(key, (b, h, s, r)).swapaxes(-1, -2)
    weights = dropout.drop(weights, values, config.attention_dropout)
  return jnp.einsum('bhqs,bshk->bqhk', weights, v)
