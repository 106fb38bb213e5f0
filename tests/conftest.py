"""Eight CPU devices, strict jax, no network."""

import os

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'

import jax

jax.config.update('jax_numpy_rank_promotion', 'raise')
# A tenth of the compile time; the programs are small.
jax.config.update('jax_disable_most_optimizations', True)
