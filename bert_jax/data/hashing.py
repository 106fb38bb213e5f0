"""Stateless random numbers, and the shuffled order of the data.

They are vectorised hashes of (seed, epoch, record, ...), which are the same on any
host, in any order: checkpoints hold no data state, and any host can read any rows.
"""

import functools

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(*parts) -> np.ndarray:
  """Returns uint64 hashes of integers, broadcast against each other.

  Each part is mixed in with splitmix64's finaliser (Steele et al., 2014, "Fast
  splittable pseudorandom number generators").
  """
  return functools.reduce(mix_in, parts, np.zeros((1,), np.uint64))


def mix_in(h: np.ndarray, part) -> np.ndarray:
  """Returns mix(*parts, part), where h is mix(*parts)."""
  h = h ^ np.asarray(part).astype(np.uint64, copy=False)
  # In place: of large arrays, each new one takes as long as the arithmetic.
  h += _GOLDEN  # uint64 arrays wrap silently, as intended
  h ^= h >> np.uint64(30)
  h *= _FIRST
  h ^= h >> np.uint64(27)
  h *= _SECOND
  h ^= h >> np.uint64(31)
  return h


def to_uniform(h: np.ndarray) -> np.ndarray:
  """Converts uint64 hashes to float64 in [0, 1)."""
  return (h >> np.uint64(11)) * (1.0 / (1 << 53))


def permute(index: np.ndarray, key: np.ndarray, size: int) -> np.ndarray:
  """Maps each index through a pseudorandom permutation of range(size).

  A four-round Feistel network permutes the next power of four. Results outside
  the range are permuted again (cycle walking), on average less than 4 times.

  Args:
    index: [...] integers in [0, size).
    key: [...] uint64, broadcast against index; one permutation per key.
  """
  bits = max(1, (int(size - 1).bit_length() + 1) // 2)
  half, low = np.uint64(bits), np.uint64((1 << bits) - 1)
  index, key = np.broadcast_arrays(index, key)
  keys = mix(key.ravel(), np.arange(4)[:, None])  # of the rounds
  y = index.ravel().astype(np.uint64)
  x, at = np.empty_like(y), np.arange(y.size)
  while len(at):
    left, right = y >> half, y & low
    for round_key in keys:
      left, right = right, left ^ (mix_in(round_key, right) & low)
    x[at] = y = (left << half) | right
    outside = y >= size
    at, y, keys = at[outside], y[outside], keys[:, outside]
  return x.reshape(index.shape).astype(np.int64)


def find_records(seed: int, rows: np.ndarray, size: int):
  """Returns (record, epoch) that each row of training reads, int64 [B] each.

  Every epoch has each record once, in a new order; `rows`, [B], are counted from
  the beginning of training.
  """
  epoch, index = np.divmod(np.asarray(rows, np.int64), size)
  return permute(index, mix(seed, epoch), size), epoch
