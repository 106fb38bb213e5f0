"""Attention that keeps no weights for the backward pass, on any device.

Scores, probabilities and dropout bits are [B, H, S, S]. Here they exist for one
block of rows and heads at a time: the forward pass keeps the maximum and the
sum of each softmax, from which the backward pass recomputes the weights
(Dao et al., arXiv 2205.14135, without their tiles: all keys of a query are in
one block). Sizes as in `model/encoder.py`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.ops import dropout, dropout_rate
from bert_jax.ops.attention_tiling import find_divisor

# Bytes of the float32 scores of a block. On a CPU, a block stays in the cache
# of a core; elsewhere, it is large enough to fill the device.
CPU_BLOCK = 2**20
BLOCK = 2**28


@dataclasses.dataclass(frozen=True)
class Blocks:
  """How [B, ..., H, ...] is split into N blocks of r rows and n heads."""

  batch: int  # B
  heads: int  # H
  rows: int  # r
  group: int  # n; H unless r is 1

  @property
  def count(self) -> int:
    return self.batch * self.heads // (self.rows * self.group)

  def split(self, x: jax.Array):
    """Returns [N, r, n, ...] of [B, H, ...]."""
    x = x.reshape(
      self.batch // self.rows, self.rows, -1, self.group, *x.shape[2:]
    )
    return x.swapaxes(1, 2).reshape(-1, self.rows, self.group, *x.shape[4:])

  def join(self, x: jax.Array):
    """Returns [B, H, ...] of [N, r, n, ...]."""
    x = x.reshape(
      self.batch // self.rows, -1, self.rows, self.group, *x.shape[3:]
    )
    return x.swapaxes(1, 2).reshape(self.batch, self.heads, *x.shape[4:])

  def repeat(self, x: jax.Array):
    """Returns, for each block, its rows [N, r, ...] of [B, ...]."""
    x = x.reshape(-1, self.rows, *x.shape[1:])
    return jnp.repeat(x, self.heads // self.group, 0)


def choose_blocks(
  batch: int, heads: int, length: int, size: int, split_heads: bool
) -> Blocks:
  """Returns the largest blocks whose scores have at most `size` bytes.

  Args:
    size: bytes in float32; a block is never less than one head of a row.
    split_heads: whether a block may have some of the heads only.
  """
  most = max(size // (4 * length * length), 1)  # heads of all rows together
  if most < heads and split_heads:
    return Blocks(batch, heads, 1, find_divisor(heads, most))
  rows = find_divisor(batch, max(most // heads, 1))
  return Blocks(batch, heads, rows, heads)


@dataclasses.dataclass(frozen=True)
class Call:
  """What does not change within a call of `attend`."""

  rate: float  # of dropout; 1 - rate is rounded to 256ths, as in `dropout`
  mask_value: float  # added to the scores of keys that a query does not see
  # Tokens of some rows -> whether queries see keys, bool [rows, 1, 1 or S, S].
  compute_mask: Callable[[Any], jax.Array]
  # Whether a block may have some of the heads only: not if a mesh splits them.
  split_heads: bool


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def attend(qkv: jax.Array, tokens: Any, key: jax.Array | None, call: Call):
  """Computes dropout(softmax(q k / sqrt(K))) v, [B, S, H, K].

  Args:
    qkv: queries, keys and values with their biases, [B, S, 3, H, K].
    tokens: a tree of arrays [B, ...], from which `call.compute_mask` makes the
      mask.
    key: of the dropout; None turns it off. A threefry key gives the bytes of
      `dropout.draw(key, [B, H, S, S])`, keys before queries; with any other,
      bits depend on the blocks.
  """
  return _forward(qkv, tokens, key, call)[0]


def _forward(qkv, tokens, key, call):
  mixed, sums = _for_platform(_forward_blocks, qkv, call)(qkv, tokens, key)
  return mixed, (qkv, tokens, key, mixed, sums)


def _backward(call, residuals, grad):
  qkv, tokens, key, mixed, sums = residuals
  # Makes the inputs of the recomputed weights depend on the gradient. Otherwise
  # XLA would find that the forward pass has computed the same, and keep it.
  words = None if key is None else jax.random.key_data(key)
  qkv, tokens, words, grad = jax.lax.optimization_barrier(
    (qkv, tokens, words, grad)
  )
  if key is not None:
    key = jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))
  # The gradient of a softmax needs sum(gradient x weight) over the keys, which
  # is the sum of gradient x output over a head.
  products = grad.astype(jnp.float32) * mixed.astype(jnp.float32)
  inner = jnp.sum(products, -1).swapaxes(1, 2)[..., None]  # [B, H, S, 1]
  backward = _for_platform(_backward_blocks, qkv, call)
  return backward(qkv, tokens, key, grad, sums, inner), None, None


attend.defvjp(_forward, _backward)


def _for_platform(function, qkv, call):
  """Returns `function` with the blocks for the platform of the compilation."""
  b, s, _, h, _ = qkv.shape

  def on(size):
    blocks = choose_blocks(b, h, s, size, call.split_heads)
    return functools.partial(function, call=call, blocks=blocks)

  return functools.partial(
    jax.lax.platform_dependent, cpu=on(CPU_BLOCK), default=on(BLOCK)
  )


def _forward_blocks(qkv, tokens, key, *, call, blocks):
  """Returns [B, S, H, K], and maximum and sum of each softmax, [2, B, H, S]."""

  def attend_block(block):
    tokens, random, (q, k, v) = block
    scores = _scores(_scale(q), k, tokens, call)
    most = jnp.max(scores, -1)
    weights = jnp.exp(scores - most[..., None])
    total = jnp.sum(weights, -1)
    weights = (weights / total[..., None]).astype(v.dtype)
    if key is not None:
      drawn = _draw(key, random, weights.shape)
      weights = dropout.drop(weights, drawn, call.rate)
    return jnp.einsum('rnqs,rnsk->rnqk', weights, v), most, total

  heads = tuple(blocks.split(x) for x in _separate(qkv))
  mixed, *sums = jax.lax.map(
    attend_block, (*_rows_of(tokens, key, qkv, blocks), heads)
  )
  return blocks.join(mixed).swapaxes(1, 2), jnp.stack(
    [blocks.join(x) for x in sums]
  )


def _backward_blocks(qkv, tokens, key, grad, sums, inner, *, call, blocks):
  """Returns the gradient of qkv, [B, S, 3, H, K].

  Args, where they differ from `attend`'s:
    grad: gradient of the output, [B, S, H, K].
    sums: from `_forward_blocks`.
    inner: for each query, its gradient times its output, [B, H, S, 1].
  """
  factor = 256 / dropout_rate.count_kept(call.rate)

  def differentiate_block(block):
    tokens, random, (q, k, v, grad, most, total, inner) = block
    scaled = _scale(q)
    scores = _scores(scaled, k, tokens, call)
    exact = jnp.exp(scores - most[..., None]) / total[..., None]
    weights = exact.astype(v.dtype)
    dweights = jnp.einsum('rnqk,rnsk->rnqs', grad, v).astype(jnp.float32)
    if key is not None:
      drawn = _draw(key, random, weights.shape)
      weights = dropout.drop(weights, drawn, call.rate)
      kept = drawn < dropout_rate.count_kept(call.rate)
      dweights = jnp.where(kept, dweights * factor, 0.0)
    dscores = (exact * (dweights - inner)).astype(q.dtype)
    dq = _scale(jnp.einsum('rnqs,rnsk->rnqk', dscores, k))
    dk = jnp.einsum('rnqs,rnqk->rnsk', dscores, scaled)
    dv = jnp.einsum('rnqs,rnqk->rnsk', weights, grad)
    return dq, dk, dv

  arrays = *_separate(qkv), grad.swapaxes(1, 2), *sums, inner
  heads = tuple(blocks.split(x) for x in arrays)
  found = jax.lax.map(
    differentiate_block, (*_rows_of(tokens, key, qkv, blocks), heads)
  )
  return jnp.stack([blocks.join(x).swapaxes(1, 2) for x in found], 2)


def _separate(qkv):
  """Returns queries, keys and values, [B, H, S, K] each."""
  return tuple(qkv[:, :, n].swapaxes(1, 2) for n in range(3))


def _scale(q):
  return q / jnp.sqrt(q.shape[-1]).astype(q.dtype)


def _scores(q, k, tokens, call):
  """Returns masked scores of a block, float32 [r, n, S, S] (from, to)."""
  scores = jnp.einsum(
    'rnqk,rnsk->rnqs', q, k, preferred_element_type=jnp.float32
  )
  return scores + jnp.where(call.compute_mask(tokens), 0.0, call.mask_value)


def _rows_of(tokens, key, qkv, blocks):
  """Returns, for each block, its tokens and what `_draw` needs."""
  b, s, _, h, _ = qkv.shape
  numbers, seeds = jnp.arange(blocks.count), None
  if key is not None and dropout.is_threefry(key):
    seeds = blocks.repeat(dropout.make_seeds(key, (b, h, s)))
  first_heads = numbers * blocks.group % h
  return jax.tree.map(blocks.repeat, tokens), (numbers, first_heads, seeds)


def _draw(key, random, shape):
  """Returns random bytes of a block, uint8 [r, n, S, S]."""
  number, first_head, seeds = random
  if seeds is None:
    return dropout.draw(jax.random.fold_in(key, number), shape)
  return dropout.draw_block(seeds, first_head, shape)
