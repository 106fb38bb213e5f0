"""Four CPU devices, strict jax, no network."""

import os
import tempfile

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'

import jax

jax.config.update('jax_numpy_rank_promotion', 'raise')
# A tenth of the compile time; the programs are small.
jax.config.update('jax_disable_most_optimizations', True)
# Tests that train the same model again find it compiled.
_CACHE = tempfile.TemporaryDirectory()
jax.config.update('jax_compilation_cache_dir', _CACHE.name)
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
