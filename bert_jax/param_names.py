"""Names of arrays: 'encoder/layer_0/mlp_in/kernel'.

Decay, sharding, freezing and conversion all match these.
"""

from collections.abc import Callable
from typing import Any

import jax


def name_of(path: tuple) -> str:
  """Returns the name of a key path of `jax.tree_util`."""
  return jax.tree_util.keystr(path, simple=True, separator='/')


def flatten(tree: Any) -> dict:
  """Returns {name: leaf}, in the tree's order."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {name_of(path): leaf for path, leaf in leaves}


def map_named(fn: Callable, tree: Any, *more: Any):
  """Returns a tree of fn(name, leaf), with the leaves of further trees."""
  return jax.tree_util.tree_map_with_path(
    lambda path, *leaves: fn(name_of(path), *leaves), tree, *more
  )
