"""Attention that keeps no weights for the backward pass, on any device.

Scores, probabilities and dropout bits are [B, H, S, S]. Here they exist for one
block of rows and heads at a time, and the backward pass computes them again.
Without dropout, a long row is computed for some queries at a time and, with a
window, only with the keys near them. Sizes as in `model/encoder.py`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.ops import dropout
from bert_jax.ops.attention_tiling import find_divisor

# Bytes of the float32 scores of a block. On a CPU, a block stays in the cache
# of a core; elsewhere, it is large enough to fill the device.
CPU_BLOCK = 2**20
BLOCK = 2**28
NEAR = 64  # queries, at least, that are computed with only the keys near them
_FEW = 128  # queries, at least, that are computed with all keys


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
  batch: int, heads: int, pairs: int, size: int, split_heads: bool
) -> Blocks:
  """Returns the largest blocks whose scores have at most `size` bytes.

  Args:
    pairs: scores of one head of a row.
    size: bytes in float32; a block is never less than one head of a row.
    split_heads: whether a block may have some of the heads only.
  """
  most = max(size // (4 * pairs), 1)  # heads of all rows together
  if most < heads and split_heads:
    return Blocks(batch, heads, 1, find_divisor(heads, most))
  rows = find_divisor(batch, max(most // heads, 1))
  return Blocks(batch, heads, rows, heads)


def _choose_reach(length: int, window: int | None) -> int | None:
  """Returns R, if R queries are to see themselves, R keys before and R after."""
  reach = max(window or 0, NEAR)
  return None if window is None or length <= 3 * reach else reach


def _choose_few(length: int, size: int) -> int:
  """Returns for how many queries of a head scores take about `size` bytes."""
  most = max(size // (4 * length), _FEW)
  divisors = (n for n in range(most, length) if length % n == 0)
  return next(divisors, length)


@dataclasses.dataclass(frozen=True)
class Call:
  """What does not change within a call of `attend`."""

  rate: float  # of dropout; 1 - rate is rounded to 256ths, as in `dropout`
  mask_value: float  # added to the scores of keys that a query does not see
  # (tokens of some rows, positions=[1, R] of queries, or None for all) -> whether
  # they see keys, bool [rows, 1, 1 or R or S, S].
  compute_mask: Callable[..., jax.Array]
  # Whether a block may have some of the heads only: not if a mesh splits them.
  split_heads: bool
  # The largest distance at which `compute_mask` lets a query see a key.
  window: int | None = None


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
  (mixed,) = _map_blocks(_attend_block, call, qkv, tokens, key)
  return mixed


def _forward(qkv, tokens, key, call):
  return attend(qkv, tokens, key, call), (qkv, tokens, key)


def _backward(call, residuals, grad):
  qkv, tokens, key = residuals
  # Makes the inputs of the recomputed weights depend on the gradient. Otherwise
  # XLA would find that the forward pass has computed the same, and keep it.
  words = None if key is None else jax.random.key_data(key)
  qkv, tokens, words, grad = jax.lax.optimization_barrier(
    (qkv, tokens, words, grad)
  )
  if key is not None:
    key = jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))
  gradients = _map_blocks(_differentiate_block, call, qkv, tokens, key, grad)
  return jnp.stack(gradients, 2), None, None


attend.defvjp(_forward, _backward)


def _map_blocks(function, call, qkv, tokens, key, *grad):
  """Returns what `function` does for blocks, a tuple of [B, S, H, K].

  Args:
    function: takes `call`, the key, what `_choose_reach` and `_choose_few` return,
      what `_draw` needs, the tokens of a block's rows, and queries, keys, values
      and maybe a gradient, [r, n, S, K].
  """
  b, s, _, h, _ = qkv.shape

  def on(size, qkv, tokens, key, *grad):
    reach = None if key is not None else _choose_reach(s, call.window)
    pairs = s * (3 * reach if reach else s)
    blocks = choose_blocks(b, h, pairs, size, call.split_heads)
    few = s if key is not None else _choose_few(s, size)
    numbers, seeds = jnp.arange(blocks.count), None
    if key is not None and dropout.is_threefry(key):
      seeds = blocks.repeat(dropout.make_seeds(key, (b, h, s)))
    random = numbers, numbers * blocks.group % h, seeds
    arrays = *(qkv[:, :, n] for n in range(3)), *grad
    found = jax.lax.map(
      lambda block: function(call, key, reach, few, *block),
      (
        random,
        jax.tree.map(blocks.repeat, tokens),
        tuple(blocks.split(x.swapaxes(1, 2)) for x in arrays),
      ),
    )
    return tuple(blocks.join(x).swapaxes(1, 2) for x in found)

  return jax.lax.platform_dependent(
    *(qkv, tokens, key, *grad),
    cpu=functools.partial(on, CPU_BLOCK),
    default=functools.partial(on, BLOCK),
  )


def _attend_block(call, key, reach, few, random, tokens, heads):
  draw = None if key is None else functools.partial(_draw, key, random)
  if reach:
    return (_attend_near(call, reach, tokens, *heads),)
  if few < heads[0].shape[2]:
    return (_attend_in_turns(call, few, tokens, *heads),)
  return (_mix(call, call.compute_mask(tokens), draw, *heads),)


def _attend_near(call, reach, tokens, q, k, v):
  def part(x, axis, around=reach):
    """Splits an axis into blocks [n, R], or [n, 3 R] with those around."""
    shape = [(0, 0)] * x.ndim
    shape[axis] = around, around + -x.shape[axis] % reach
    x = jnp.pad(x, shape)
    x = x.reshape(*x.shape[:axis], -1, reach, *x.shape[axis + 1 :])
    count = x.shape[axis] - 2 * around // reach
    found = range(2 * around // reach + 1)
    slices = [jax.lax.slice_in_dim(x, n, count + n, axis=axis) for n in found]
    return jnp.concatenate(slices, axis + 1)

  near = jax.tree.map(lambda x: part(x, 1).reshape(-1, 3 * reach), tokens)
  seen = call.compute_mask(near, positions=jnp.arange(reach, 2 * reach)[None])
  seen = seen.reshape(q.shape[0], 1, -1, *seen.shape[2:])
  mixed = _mix(call, seen, None, part(q, 2, 0), part(k, 2), part(v, 2))
  return mixed.reshape(*q.shape[:2], -1, q.shape[3])[:, :, : q.shape[2]]


def _attend_in_turns(call, few, tokens, q, k, v):
  @functools.partial(jax.checkpoint, prevent_cse=False)
  def attend(part):
    q, places = part
    seen = call.compute_mask(tokens, positions=places[None])
    return _mix(call, seen, None, q, k, v)

  parts = jnp.moveaxis(q.reshape(*q.shape[:2], -1, few, q.shape[3]), 2, 0)
  places = jnp.arange(q.shape[2]).reshape(-1, few)
  mixed = jax.lax.map(attend, (parts, places))
  return jnp.moveaxis(mixed, 0, 2).reshape(q.shape)


def _mix(call, seen, draw, q, k, v):
  """Returns [r, n, ..., R, K] of queries [r, n, ..., R, K] and keys."""
  q = q / jnp.sqrt(q.shape[-1]).astype(q.dtype)
  scores = jnp.einsum(
    'rn...qk,rn...sk->rn...qs', q, k, preferred_element_type=jnp.float32
  )
  scores = scores + jnp.where(seen, 0.0, call.mask_value)
  weights = jax.nn.softmax(scores).astype(v.dtype)
  if draw is not None:
    weights = dropout.drop(weights, draw(weights.shape), call.rate)
  return jnp.einsum('rn...qs,rn...sk->rn...qk', weights, v)


def _differentiate_block(call, key, reach, few, random, tokens, arrays):
  *heads, grad = arrays
  attend_block = functools.partial(
    _attend_block, call, key, reach, few, random, tokens
  )
  _, pull = jax.vjp(lambda *heads: attend_block(heads), *heads)
  return pull((grad,))


def _draw(key, random, shape):
  """Returns random bytes of a block, uint8 [r, n, S, S]."""
  number, first_head, seeds = random
  if seeds is None:
    return dropout.draw(jax.random.fold_in(key, number), shape)
  return dropout.draw_block(seeds, first_head, shape)
