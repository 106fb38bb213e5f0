"""A fingerprint of arrays that does not depend on their sharding.

It detects flipped bits in array files, which Orbax does not. Every element is
hashed with its index, and the hashes are added modulo 2^32. The order of the
sum does not matter, and a single changed element always changes it.
"""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import param_names

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_BLOCK = 1 << 16  # elements, which stay in a core's cache


def _leaf(x):
  """Returns the uint32 fingerprint of one array on devices."""
  bits = jax.lax.bitcast_convert_type(x, _UNSIGNED[x.dtype.itemsize])
  index = jnp.zeros(x.shape, jnp.uint32)
  for axis, size in enumerate(x.shape):
    position = jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
    index = index * jnp.uint32(size) + position
  return jnp.sum(_hash(bits.astype(jnp.uint32), index), dtype=jnp.uint32)


def _hash(bits, index):
  # Each step is a bijection of uint32, so different bits stay different.
  h = (bits ^ (index * np.uint32(0x9E3779B1))) * np.uint32(0x85EBCA6B)
  h = (h ^ (h >> 15)) * np.uint32(0xC2B2AE35)
  return h ^ (h >> 13)


def _leaf_on_host(x) -> int:
  x = np.ascontiguousarray(x, jax.dtypes.canonicalize_dtype(x.dtype)).ravel()
  bits, total = x.view(_UNSIGNED[x.itemsize]), 0
  for start in range(0, bits.size, _BLOCK):
    block = bits[start : start + _BLOCK].astype(np.uint32)
    index = np.arange(start, start + block.size).astype(np.uint32)
    total += int(np.sum(_hash(block, index), dtype=np.uint64))
  return total % 2**32


@jax.jit
def of_leaves(tree: Any):
  """Returns the tree of the arrays' fingerprints, uint32."""
  return jax.tree.map(_leaf, tree)


def of_arrays(tree: Any) -> dict[str, str]:
  """Returns {name: fingerprint in hexadecimal} of a tree of arrays."""
  if any(isinstance(x, jax.Array) for x in jax.tree.leaves(tree)):
    marks = jax.device_get(of_leaves(tree))
  else:
    marks = jax.tree.map(_leaf_on_host, tree)
  return {
    name: f'{int(x):08x}' for name, x in param_names.flatten(marks).items()
  }


def combine(fingerprints: dict[str, str]) -> str:
  """Combines fingerprints of arrays into one, 16 hexadecimal digits."""
  text = '\n'.join(f'{k} {v}' for k, v in sorted(fingerprints.items()))
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
