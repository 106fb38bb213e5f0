"""Splits attention over rows and heads into blocks that are done in turn."""

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Blocks:
  """How [B, ..., H, ...] is split into N blocks of r rows and n heads.

  Attributes:
    batch: B.
    heads: H.
    rows: r.
    group: n; H unless r is 1.
  """

  batch: int
  heads: int
  rows: int
  group: int

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


def choose(
  batch: int, heads: int, length: int, size: int, split_heads: bool
) -> Blocks:
  """Returns the largest blocks whose scores have at most `size` bytes.

  Args:
    batch: B.
    heads: H.
    length: S.
    size: bytes in float32; a block is never less than one head of a row.
    split_heads: whether a block may have some of the heads only.
  """
  most = max(size // (4 * length * length), 1)  # heads of all rows together
  if most < heads and split_heads:
    return Blocks(batch, heads, 1, _largest_divisor(heads, most))
  rows = _largest_divisor(batch, max(most // heads, 1))
  return Blocks(batch, heads, rows, heads)


def _largest_divisor(n, most) -> int:
  return next(d for d in range(min(n, most), 0, -1) if n % d == 0)
