"""Examines a run on absent GPUs, as far as possible without their compiler.

The programs are lowered for CUDA, as far as jax goes; memory is modelled, time
is a roofline. The facts have the same form as for TPUs (`examine`).
"""

import contextlib
import dataclasses
import functools
import os
import types
from collections.abc import Callable

import jax
from ml_collections import config_dict

from bert_jax import errors, tasks
from bert_jax.hardware import accelerators
from bert_jax.parallel import device_mesh
from bert_jax.preflight import (
  compile_step,
  estimate,
  examine,
  largest_batch,
  measured_ratios,
  memory_model,
)
from bert_jax.train import programs, task, tuning

# The variables with jax's share of a GPU, the second one deprecated.
_FRACTIONS = 'XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION'
_DEFAULT_FRACTION = '0.75'
# All layers lower in the same way.
_LOWERED_LAYERS = 2


def examine_run(
  config: config_dict.ConfigDict,
  topology: accelerators.Topology,
  phases: list[task.Phase],
  say: Callable[[str], None] = print,
):
  """Lowers the programs of a run for GPUs, and models its phases.

  Needs as many devices of any platform as the topology has. Returns (programs,
  facts) as `examine.examine` does.
  """
  calibration = measured_ratios.read(topology.chip.name)
  mesh = device_mesh.make_mesh(
    config.mesh.model, jax.devices()[: topology.devices]
  )
  for phase in phases:
    device_mesh.check_batch(mesh, phase.batch_size, phase.accumulate)
  device = types.SimpleNamespace(
    platform='gpu', device_kind=topology.chip.kinds[0]
  )
  say('lowering the programs of the run for CUDA ...')
  listed = _list_programs(config, device, mesh, phases)
  judged = examine.judge((p, _find_problem(p)) for p in listed)
  say('counting the memory of the run ...')
  return judged, [
    _examine_phase(
      tuning.resolve(config, device, phase.seq_length),
      *(topology, mesh, phase, calibration),
    )
    for phase in phases
  ]


def _list_programs(config, device, mesh, phases):
  fewer = config.copy_and_resolve_references()
  fewer.model.num_layers = min(config.model.num_layers, _LOWERED_LAYERS)
  make = tasks.get(fewer).make_objective
  found = programs.list_start(fewer, make(fewer), mesh)
  for phase in task.split_by_length(make(fewer), phases):
    tuned = tuning.resolve(fewer, device, phase.seq_length)
    found += programs.list_phase(tuned, make(tuned), mesh, phase)
  return found


def lower(program: programs.Program) -> jax.stages.Lowered:
  """Lowers a program for CUDA without a GPU."""
  # The GPU to lower kernels for; jax 0.10 did not ask for one.
  with contextlib.suppress(ImportError):
    from jax._src.pallas.triton import gpu_info as known

    h100 = functools.partial(
      known.get_gpu_info_from_version, known.GpuVersion.H100
    )
    known.registry.setdefault(jax.devices()[0].device_kind, h100)
  traced = program.jitted.trace(*program.arguments)
  return traced.lower(lowering_platforms=('cuda',))


def _find_problem(program) -> str | None:
  """Returns why a program does not lower; None if it does."""
  try:
    lower(program)
  except errors.UserError:
    raise
  except Exception as error:  # lowering raises many types
    return f'it cannot be lowered for CUDA: {errors.first_line(error)}'
  return None


def get_usable_memory(memory: int) -> int:
  """Returns the bytes of a GPU that jax takes."""
  name = next(filter(os.environ.get, _FRACTIONS), '')
  text = os.environ.get(name, _DEFAULT_FRACTION)
  try:
    return int(float(text) * memory)
  except ValueError:
    raise errors.UserError(
      f'{name}={text} is not a number; give one such as 0.9.'
    ) from None


def _examine_phase(config, topology, mesh, phase, calibration):
  """Returns the facts of a phase, of a resolved config."""
  chip = topology.chip.for_products(
    config.model.dtype, config.compute.matmul_precision
  )
  count, usable = topology.chips, get_usable_memory(topology.chip.memory)
  memory = memory_model.model_step(config, phase, mesh)
  batch = largest_batch.estimate(
    memory.total,
    memory.fixed,
    usable,
    sums=compile_step.count_gradient_bytes(config, mesh),
    phase=phase,
    shares=mesh.shape['data'],
  )
  facts = examine.describe_phase(config, phase, usable)
  flops = facts['model_flops_per_step']
  state = memory.parameters + memory.optimizer
  others = estimate.time_update(
    memory.parameters, state, memory.weights, chip, count
  )
  return {
    **facts,
    'fits': memory.total <= usable,
    'needed_bytes': memory.total,
    'memory': dataclasses.asdict(memory),
    **batch,
    'compute': config.compute.to_dict(),
    **estimate.estimate_gpu_step(flops, chip, count, calibration, others),
  }
