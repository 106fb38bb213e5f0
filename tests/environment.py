"""The environment of tests and of the processes that they start."""

import os
from importlib import metadata

_JAXLIB = tuple(map(int, metadata.version('jaxlib').split('.')[:2]))


def for_devices(count: int) -> dict[str, str]:
  """Returns this process's environment, with so many CPU devices."""
  flags = [
    f'--xla_force_host_platform_device_count={count}',
    # All of a program in one module of LLVM: its parts would take longer.
    '--xla_cpu_parallel_codegen_split_count=1',
  ]
  if _JAXLIB < (0, 11):
    # The newer way to compile fusions for CPUs takes twice as long. XLA stops
    # at a flag that it does not know, as later versions do not know this one.
    flags.append('--xla_cpu_use_fusion_emitters=false')
  return {**os.environ, 'XLA_FLAGS': ' '.join(flags)}
