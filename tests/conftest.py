"""Four CPU devices, strict jax, one cache of compiled programs, no network.

All of it is in the environment, so that the processes that tests start have it.
"""

import gc
import os
import tempfile

from tests import environment

# Tests that train the same model again find it compiled.
_CACHE = tempfile.TemporaryDirectory()
os.environ.update(
  JAX_PLATFORMS='cpu',
  JAX_NUMPY_RANK_PROMOTION='raise',
  # A tenth of the compile time; the programs are small.
  JAX_DISABLE_MOST_OPTIMIZATIONS='true',
  JAX_COMPILATION_CACHE_DIR=_CACHE.name,
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
)
os.environ.update(environment.for_devices(4))
# Tracing makes many objects and little garbage.
gc.set_threshold(100_000, 20, 100)
