"""Describes absent accelerators, and reads what was compiled for them."""

import dataclasses
import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from bert_jax import errors, param_names
from bert_jax.hardware import accelerators
from bert_jax.parallel import partition
from bert_jax.preflight import gpu_compiler
from bert_jax.runtime import machine
from bert_jax.trainer import programs, shortage

_ENVIRONMENT = {
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
}


@dataclasses.dataclass(frozen=True)
class Memory:
  """Memory of one device in bytes."""

  parameters: float
  optimizer: float
  batch: float  # all other arguments, too, and padding of arrays to tiles
  temporary: float  # peak of gradients, activations and the like
  program: float  # the compiled code

  @property
  def total(self) -> float:
    return sum(dataclasses.astuple(self))


class Compiled(NamedTuple):
  """The result of compiling a step."""

  memory: Memory
  text: str | None  # scheduled HLO; None if it does not fit a TPU


def describe_devices(topology: accelerators.Topology) -> list:
  """Returns devices of a slice to compile for, without any hardware.

  For TPUs, sets environment variables that keep libtpu from looking for one, and
  allow several such processes at a time; for GPUs, XLA_FLAGS.
  """
  if not topology.is_tpu:
    return gpu_compiler.describe_devices(topology)
  if not machine.is_installed(machine.TPU_COMPILER):
    raise errors.UserError(
      'the TPU compiler is not installed; run '
      "pip install 'bert_jax[tpu]' (it needs no TPU)."
    )
  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  options = dict(topology.options)
  if topology.slices > 1:
    options['num_slices'] = topology.slices
  try:
    found = topologies.get_topology_desc(
      topology.name, platform='tpu', **options
    )
  except jax.errors.JaxRuntimeError as error:
    raise errors.UserError(
      f'the TPU compiler refuses {topology.name}: {errors.first_line(error)}; '
      'use another --topology.'
    ) from error
  return found.devices


def get_usable_memory(
  topology: accelerators.Topology, device: jax.Device
) -> int:
  """Returns the bytes of a device of a slice that programs may use.

  A TPU's are read from the compiler's error for a program that is too large.
  """
  if not topology.is_tpu:
    return gpu_compiler.get_usable_memory(topology.chip.memory)
  placed = SingleDeviceSharding(device)
  huge = jax.ShapeDtypeStruct((2**19, 2**19), jnp.float32, sharding=placed)
  try:
    jax.jit(lambda x: x @ x @ x).lower(huge).compile()
  except jax.errors.JaxRuntimeError as error:
    missing = shortage.parse(error)
    if missing is None:
      raise
    return missing.available
  raise ValueError('a program of 3 TiB fits: the limit cannot be found.')


def examine(outcome: programs.Outcome, platform: str) -> Compiled:
  """Returns memory and HLO text of a training step or an evaluation."""
  first, *rest = outcome.program.arguments
  parameters, optimizer = first, []
  if outcome.program.name == programs.TRAIN:
    parameters, optimizer = first.params, first.opt_state
  sizes = [shortage.count_bytes(x) for x in (parameters, optimizer, rest)]
  parameters, optimizer, _ = sizes
  if outcome.executable is None:
    missing = outcome.shortage
    temporary = missing.needed - missing.with_arguments * sum(sizes)
    return Compiled(Memory(*sizes, max(temporary, 0), 0), None)
  found = outcome.executable.memory_analysis()
  # The peak includes the arguments. On TPUs, `temp_size_in_bytes` is not live at
  # one time: it can exceed the device's memory although the program fits. XLA for
  # GPUs allocates all of it.
  peak = found.peak_memory_in_bytes
  if platform == 'gpu':
    peak = shortage.count_needed(outcome.executable)
  memory = Memory(
    parameters=parameters,
    optimizer=optimizer,
    batch=found.argument_size_in_bytes - parameters - optimizer,
    temporary=peak - found.argument_size_in_bytes,
    program=found.generated_code_size_in_bytes,
  )
  return Compiled(memory, outcome.executable.as_text())


def count_gradient_bytes(init: Callable, mesh: Mesh) -> int:
  """Returns the bytes of a device's float32 gradients, before the reduction."""
  params = jax.eval_shape(init, jax.random.key(0))

  def place(name, x):
    spec = partition.compute_spec(mesh, name, x.shape)
    placed = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed)

  return shortage.count_bytes(param_names.map_named(place, params))
