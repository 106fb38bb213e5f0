"""Describes absent NVIDIA GPUs to XLA's compiler for them, which needs no GPU."""

import functools
import os

import jax
from jax.experimental import topologies

from bert_jax import errors
from bert_jax.hardware import accelerators, chips
from bert_jax.runtime import machine

# With a GPU, XLA times several ways to compute each product. With these flags, cuBLAS
# computes all of them.
_FLAGS = '--xla_gpu_autotune_level=0', '--xla_gpu_enable_triton_gemm=false'
# The variables with jax's share of a GPU: the second is the former name.
FRACTIONS = 'XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION'
_DEFAULT_FRACTION = '0.75'
# {compute capability: KiB of shared memory, threads at a time and float32 units of
# a multiprocessor} (CUDA's programming guide, appendix on compute capabilities).
_MULTIPROCESSORS = {
  '8.0': (164, 2048, 64),
  '8.6': (100, 1536, 128),
  '8.9': (100, 1536, 128),
  '9.0': (228, 2048, 128),
  '10.0': (228, 2048, 128),
  '12.0': (100, 1536, 128),
}
# What XLA asks of a GPU. A block may have all shared memory but 1 KiB; the clock is
# the one with which the data sheet's float32 FLOP/s are reached.
_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: {threads}
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {optin}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  core_count: {cores}
  fpus_per_core: {units}
  clock_rate_ghz: {clock}
  l2_cache_size: {cache}
  memory_bandwidth: {bandwidth}
  device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: {cuda} }}
device_description_str: "{kind}"
"""


def describe_devices(topology: accelerators.Topology) -> list[jax.Device]:
  """Returns devices to compile for, without any hardware.

  Adds flags to the environment variable XLA_FLAGS, unless they are there.
  """
  found = (
    n for n, x in machine.CUDA_COMPILERS.items() if machine.is_installed(x)
  )
  cuda = next(found, None)
  if cuda is None:
    raise errors.UserError(
      'the compiler for NVIDIA GPUs is not installed; run pip install '
      "'bert_jax[gpu-compiler]' on Linux (it needs no GPU)."
    )
  flags = os.environ.get('XLA_FLAGS', '').split()
  given = {flag.partition('=')[0] for flag in flags}
  flags += [x for x in _FLAGS if x.partition('=')[0] not in given]
  os.environ['XLA_FLAGS'] = ' '.join(flags)
  tell_pallas()
  return topologies.get_topology_desc(
    platform='cuda',
    topology=f'{topology.slices}x1x{topology.chips // topology.slices}',
    target_config=_describe(topology.chip, cuda),
  ).devices


def _describe(chip: chips.Chip, cuda: int) -> str:
  major, minor = chip.capability.split('.')
  shared, threads, units = _MULTIPROCESSORS[chip.capability]
  per_cycle = 2 * units * chip.multiprocessors
  return _TARGET.format(
    major=major,
    minor=minor,
    cuda=cuda,
    kind=chip.kinds[0],
    threads=threads,
    shared=shared * 2**10,
    optin=(shared - 1) * 2**10,
    cores=chip.multiprocessors,
    units=units,
    clock=round(chip.float32_flops / per_cycle / 1e9, 3),
    cache=chip.cache,
    bandwidth=round(chip.hbm_bandwidth),
    memory=chip.memory,
  )


def tell_pallas():
  """Tells Pallas of absent GPUs, of whose generation it would ask the GPU itself.

  Lowered for no GPU in particular, kernels are for an H100. jax 0.10 did not ask.
  """
  try:
    from jax._src.pallas.triton import gpu_info
  except ImportError:
    return
  gpu_info._get_device_arch_name = lambda kind: chips.find(kind).capability
  h100 = gpu_info.GpuVersion.H100
  gpu_info.registry.setdefault(
    jax.devices('cpu')[0].device_kind,
    functools.partial(gpu_info.get_gpu_info_from_version, h100),
  )


def get_usable_memory(memory: int) -> int:
  """Returns the bytes of a GPU that jax takes."""
  given = filter(None, map(os.environ.get, FRACTIONS))
  return int(float(next(given, _DEFAULT_FRACTION)) * memory)
