"""What the kernels of `fused_attention` are compiled for, and their sizes."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

F32 = jnp.float32
LANES = 128  # of a TPU's register
# Of the 16 MiB that a v4 has, and that a v5e or v5p gives a kernel that asks
# for no more. A kernel is traced before it is known what it will run on.
_VMEM_BYTES = 15.25 * 2**20
_MOST_TOKENS = 512  # of a step; a core waits for its first one
# By the bytes of a number: the most groups in flight at once, and the
# float32 arrays that the compiler then keeps in the backward kernel: for each
# head [S, 128] and [128, lanes], for each group [S, lanes]. Fitted from above to
# what v5e kernels with heads of 16 to 128 needed when they were given too
# little; `benchmarks/tpu/kernel_shapes.py` tries whether it is enough.
_TEMPORARY = {4: (2.5, 3.5, 6, 6), 2: (2, 3.6, 0, 0)}


@dataclasses.dataclass(frozen=True)
class Step:
  """What a kernel does in a step of its grid.

  Attributes:
    rows: of the batch.
    lanes: of all heads' queries.
    groups: of heads that take turns.
    blocks: of 128 queries, of each of these groups, that take turns.
    separate: whether gradients of queries, keys and values have arrays each,
      [3, B, S, H K]; else they are [B, S, 3 H K], and a step holds whole rows.
  """

  rows: int
  lanes: int
  groups: int
  blocks: int
  separate: bool


@dataclasses.dataclass(frozen=True)
class Call:
  """What a kernel is compiled for.

  Attributes:
    shape: B, S, H, K.
    dtype: of queries, keys and values.
    keep: probability in 256ths that a weight is kept; 256 is no dropout.
    threefry: whether words are hashed, else the chip draws them.
    mask_value: added to the scores of hidden keys.
    causal: whether no query sees later keys.
    packed: whether queries see keys of their own sequence only.
  """

  shape: tuple[int, int, int, int]
  dtype: np.dtype
  keep: int
  threefry: bool
  mask_value: float
  causal: bool
  packed: bool

  @property
  def blocks(self) -> int:
    """Returns how many times 128 queries a row has."""
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
    """Says whether all queries of a row see the same keys."""
    return not (self.causal or self.packed)

  @property
  def scale(self) -> float:
    """Returns 1 / sqrt(K), the root rounded as the model rounds it."""
    return 1 / float(np.sqrt(self.shape[3]).astype(self.dtype))

  def step(self, gradient: bool) -> Step | None:
    """Returns a kernel's step of the grid; None if none fits a TPU."""
    # The more turns, the busier all units, and the longer the program.
    most = 8 if self.blocks == 1 else 4
    smallest = (
      self._of_one_row(groups, turns, separate)
      # Separate gradients are moved once more, where they are put together.
      for separate in ([False, True] if gradient else [False])
      for turns in (8, 4, 3, 2, 1)
      for groups in range(self.groups, 0, -1)
      if turns <= most and self.groups % groups == 0
    )
    fitting = (self._with_most_rows(gradient, x) for x in smallest)
    return next(filter(None, fitting), None)

  def _of_one_row(self, groups: int, turns: int, separate: bool) -> Step:
    blocks = _divisor(self.blocks, turns)
    return Step(
      rows=1,
      lanes=groups * self.lanes,
      groups=_divisor(groups, turns // blocks),
      blocks=blocks,
      separate=separate,
    )

  def _with_most_rows(self, gradient: bool, step: Step) -> Step | None:
    """Returns a step with more rows; None if not even one row fits."""
    b = self.shape[0]
    steps = (
      dataclasses.replace(step, rows=n)
      for n in range(1, _MOST_TOKENS // self.shape[1] + 1)
      if b % n == 0
    )
    # A v4 or v5p has two cores, which share the steps: the fewer rows the
    # busier one has the better. Two steps at least also let a core fetch the
    # next one's rows while it works.
    return min(
      (x for x in steps if self._bytes(gradient, x) <= _VMEM_BYTES),
      key=lambda x: (x.rows * math.ceil(b // x.rows / 2), -x.rows),
      default=None,
    )

  def _bytes(self, gradient: bool, step: Step) -> float:
    """Returns what a step takes of the vector memory, an upper estimate."""
    _, s, h, k = self.shape
    row = 4 * step.lanes  # numbers of a token
    if gradient:
      row += 3 * (step.lanes if step.separate else h * k)
    blocks = step.rows * s * row * self.dtype.itemsize
    blocks += step.rows * 8 * s * 4  # tokens, padded to a register's sublanes
    sums = 2 * step.groups * s * self.lanes * 4 if gradient else 0
    bias = s * (LANES if self.one_mask else s) * 4
    # The next step's are read, the last one's written at the same time.
    return 2 * blocks + sums + bias + self._temporary(gradient, step)

  def _temporary(self, gradient: bool, step: Step) -> float:
    """Returns what the compiler keeps between operations.

    They are arrays [S, 128] and [128, lanes] of each head and [S, lanes] of
    each group at work; later turns take the place of the first ones.
    """
    s, lanes = self.shape[1], self.lanes
    at_work, scores, queries, keys = _TEMPORARY[self.dtype.itemsize]
    head = scores * s * LANES + queries * LANES * lanes
    group = len(self.heads) * head + keys * s * lanes
    turns = min(step.groups * step.blocks, at_work)
    return 4 * turns * group * (1 if gradient else 0.5)


def _divisor(n: int, most: int) -> int:
  """Returns the largest divisor of n that is no larger than `most`."""
  return max(m for m in range(1, most + 1) if n % m == 0)
