"""The environment of tests and of the processes that they start."""

import os


def for_devices(count: int) -> dict[str, str]:
  """Returns this process's environment, with so many CPU devices."""
  flags = (
    f'--xla_force_host_platform_device_count={count}',
    # XLA's newer way to compile fusions for CPUs takes twice as long. Known to
    # jaxlib 0.9 to 0.12; where it is unknown, jax stops and names it.
    '--xla_cpu_use_fusion_emitters=false',
  )
  return {**os.environ, 'XLA_FLAGS': ' '.join(flags)}
