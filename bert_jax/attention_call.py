"""What the kernels of `fused_attention` are compiled for, and their sizes."""

import dataclasses

import jax.numpy as jnp
import numpy as np

F32 = jnp.float32
LANES = 128  # of a TPU's register
# Of the 16 MiB that every TPU gives a kernel, for what it reads and writes.
_BLOCK_BYTES = 11 * 2**20
_MOST_ROWS = 8  # of a step


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

  def step(self, gradient: bool) -> tuple[int, int]:
    """Returns the rows and lanes of a step of the grid."""
    b, s, h, k = self.shape
    width = h * k

    def fits(rows, lanes):
      moved = 4 * lanes + (3 * width if gradient else 0)
      # The next step's are read, the last one's written at the same time.
      return 2 * rows * s * moved * self.dtype.itemsize <= _BLOCK_BYTES

    # One group is tried even where it does not fit: the compiler says so.
    groups = (
      n
      for n in range(2, self.groups + 1)
      if self.groups % n == 0 and fits(1, n * self.lanes)
    )
    lanes = self.lanes * max(groups, default=1)
    rows = (
      n for n in range(2, _MOST_ROWS + 1) if b % n == 0 and fits(n, lanes)
    )
    return max(rows, default=1), lanes
