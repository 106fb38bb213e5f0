"""Which of jax's compilers for accelerators are installed."""

import importlib.util

TPU = 'libtpu'
CUDA = {13: 'jax_plugins.xla_cuda13', 12: 'jax_plugins.xla_cuda12'}


def is_installed(module: str) -> bool:
  """Returns whether a module can be imported, without importing it."""
  try:
    return importlib.util.find_spec(module) is not None
  except ModuleNotFoundError:  # nor is the package that it is a part of
    return False
