"""Chooses the block sizes of `fused_attention`'s kernels."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

F32 = jnp.float32
LANES = 128  # of a TPU's vector register
# Out of 16 MiB, which a v4 has, and which a v5e or v5p gives a kernel by
# default. A kernel is traced before it is known which chip it will run on.
_VMEM_BYTES = 15.25 * 2**20
_MOST_TOKENS = 512  # per step; a core waits while its first step is loaded
# By bytes per number: the maximum of groups in flight, and how many float32
# arrays the compiler then keeps in the backward kernel: [S, 128] and
# [128, lanes] per head, [S, lanes] per group. An upper bound, fitted to the
# memory that earlier kernels for v5e, with heads of 16 to 128, asked for when
# given too little; `a71d0fb:benchmarks/tpu/kernel_shapes.py` checked them.
_TEMPORARY = {4: (2.5, 3.5, 6, 6), 2: (2, 3.6, 0, 0)}


@dataclasses.dataclass(frozen=True)
class Step:
  """How much a kernel processes in one step of its grid."""

  rows: int  # of the batch
  lanes: int  # of all of the step's heads, in the queries
  groups: int  # of heads that take turns
  blocks: int  # of 128 queries of each of these groups, that take turns
  # Whether the gradients of queries, keys and values are separate, [3, B, S,
  # H K]; else they are [B, S, 3 H K], and a step holds whole rows.
  separate: bool


@dataclasses.dataclass(frozen=True)
class Call:
  """Shapes and options that a kernel is compiled for."""

  shape: tuple[int, int, int, int]  # B, S, H, K
  dtype: np.dtype  # of queries, keys and values
  keep: int  # probability in 256ths that a weight is kept; 256: no dropout
  threefry: bool  # draws the random words; else the TPU's generator does
  mask_value: float  # added to the scores of masked keys
  causal: bool  # queries do not see later keys
  packed: bool  # queries see only keys of their own sequence

  @property
  def blocks(self) -> int:
    """The number of blocks of 128 queries in a row."""
    return self.shape[1] // LANES

  @property
  def lanes(self) -> int:
    """Returns the lanes of a group of heads."""
    return max(self.shape[3], LANES)

  @property
  def heads(self) -> list[slice]:
    """Returns the lanes of each head of a group."""
    k = self.shape[3]
    return [slice(n, n + k) for n in range(0, self.lanes, k)]

  @property
  def groups(self) -> int:
    """Returns how many groups of heads there are."""
    return self.shape[2] * self.shape[3] // self.lanes

  @property
  def one_mask(self) -> bool:
    """Returns whether all queries of a row see the same keys."""
    return not (self.causal or self.packed)

  @property
  def scale(self) -> float:
    """Returns 1 / sqrt(K), with the root rounded as in the model."""
    return 1 / float(np.sqrt(self.shape[3]).astype(self.dtype))

  def step(self, gradient: bool) -> Step | None:
    """Returns the step of a kernel's grid; None if none fits into VMEM."""
    # More turns keep all units busier, but make the program longer.
    most = 8 if self.blocks == 1 else 4
    smallest = (
      self._of_one_row(groups, turns, separate)
      # Separate gradients are copied once more, to concatenate them.
      for separate in ([False, True] if gradient else [False])
      for turns in (8, 4, 3, 2, 1)
      for groups in range(self.groups, 0, -1)
      if turns <= most and self.groups % groups == 0
    )
    fitting = (self._with_most_rows(gradient, x) for x in smallest)
    return next(filter(None, fitting), None)

  def _of_one_row(self, groups: int, turns: int, separate: bool) -> Step:
    blocks = find_divisor(self.blocks, turns)
    return Step(
      rows=1,
      lanes=groups * self.lanes,
      groups=find_divisor(groups, turns // blocks),
      blocks=blocks,
      separate=separate,
    )

  def _with_most_rows(self, gradient: bool, step: Step) -> Step | None:
    """Returns the step with the best number of rows; None if not one fits."""
    b = self.shape[0]
    steps = (
      dataclasses.replace(step, rows=n)
      for n in range(1, _MOST_TOKENS // self.shape[1] + 1)
      if b % n == 0
    )
    # A v4 or v5p has two cores, which share the steps: minimise the rows of the
    # busier one. With two or more steps, a core also loads the rows of the next
    # step while it computes.
    return min(
      (x for x in steps if self._bytes(gradient, x) <= _VMEM_BYTES),
      key=lambda x: (x.rows * math.ceil(b // x.rows / 2), -x.rows),
      default=None,
    )

  def _bytes(self, gradient: bool, step: Step) -> float:
    """Returns an upper estimate of a step's bytes of vector memory."""
    _, s, h, k = self.shape
    row = 4 * step.lanes  # numbers per token
    if gradient:
      row += 3 * (step.lanes if step.separate else h * k)
    blocks = step.rows * s * row * self.dtype.itemsize
    numbers = 8  # per token, in a register's sublanes
    if self.blocks > 1:  # those of `attention_kernels`, and the output
      numbers += step.lanes // self.lanes * max(8, 2 * len(self.heads))
      blocks += step.rows * s * step.lanes * self.dtype.itemsize * gradient
    blocks += step.rows * numbers * s * 4
    sums = 2 * step.groups * s * self.lanes * 4 if gradient else 0
    bias = s * (LANES if self.one_mask else s) * 4
    # Double: the next step's are loaded and the last one's stored meanwhile.
    return 2 * blocks + sums + bias + self._temporary(gradient, step)

  def _temporary(self, gradient: bool, step: Step) -> float:
    """Returns the bytes of intermediate results that the compiler keeps.

    These are arrays [S, 128] and [128, lanes] of each head, and [S, lanes] of
    each group in flight; later turns reuse the memory of the first ones.
    """
    s, lanes = self.shape[1], self.lanes
    at_work, scores, queries, keys = _TEMPORARY[self.dtype.itemsize]
    head = scores * s * LANES + queries * LANES * lanes
    group = len(self.heads) * head + keys * s * lanes
    turns = min(step.groups * step.blocks, at_work)
    return 4 * turns * group * (1 if gradient else 0.5)


def find_divisor(n: int, most: int) -> int:
  """Returns the largest divisor of n that is at most `most`."""
  return next(m for m in range(min(n, most), 0, -1) if n % m == 0)
