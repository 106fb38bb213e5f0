"""The environment of tests and of the processes that they start."""

import os


def for_devices(count: int) -> dict[str, str]:
  """Returns this process's environment, with so many CPU devices."""
  flags = (
    f'--xla_force_host_platform_device_count={count}',
    # XLA's newer way to compile fusions for CPUs takes twice as long. Known to
    # jaxlib 0.9 to 0.12; where it is unknown, jax stops and names it.
    '--xla_cpu_use_fusion_emitters=false',
    # All of a program in one module of LLVM: its parts would take longer.
    '--xla_cpu_parallel_codegen_split_count=1',
  )
  return {**os.environ, 'XLA_FLAGS': ' '.join(flags)}
