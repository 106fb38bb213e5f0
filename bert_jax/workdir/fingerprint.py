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

_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}


def _leaf(x):
  """Returns the uint32 fingerprint of one array."""
  bits = jax.lax.bitcast_convert_type(x, _UNSIGNED[x.dtype.itemsize])
  bits = bits.astype(jnp.uint32)
  index = jnp.zeros(x.shape, jnp.uint32)
  for axis, size in enumerate(x.shape):
    position = jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
    index = index * jnp.uint32(size) + position
  # Each step is a bijection of uint32, so different bits stay different.
  h = (bits ^ (index * jnp.uint32(0x9E3779B1))) * jnp.uint32(0x85EBCA6B)
  h = (h ^ (h >> 15)) * jnp.uint32(0xC2B2AE35)
  return jnp.sum(h ^ (h >> 13), dtype=jnp.uint32)


@jax.jit
def of_leaves(tree: Any):
  """Returns the tree of the arrays' fingerprints, uint32."""
  return jax.tree.map(_leaf, tree)


def of_arrays(tree: Any) -> dict[str, str]:
  """Returns {name: fingerprint in hexadecimal} of a tree of arrays."""
  found = param_names.flatten(jax.device_get(of_leaves(tree)))
  return {name: f'{int(np.asarray(x)):08x}' for name, x in found.items()}


def combine(fingerprints: dict[str, str]) -> str:
  """Combines fingerprints of arrays into one, 16 hexadecimal digits."""
  text = '\n'.join(f'{k} {v}' for k, v in sorted(fingerprints.items()))
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
