"""Compiles the training step for accelerators that are not there."""

import dataclasses
import functools
import importlib.util
import math
import os
import re

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding, SingleDeviceSharding

from bert_jax import errors, names, optim, partition, sharding, tuning
from bert_jax import step as step_lib
from bert_jax import topology as topology_lib
from bert_jax.tasks import pretrain

_ENVIRONMENT = {
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
}
_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
_SIZE = r'([\d.]+)([KMGT]?)'
# The two ways in which the TPU compiler says that a program does not fit, and
# whether the bytes that it asks for have the arguments in them.
_NEEDED = (
  (re.compile(f'Used {_SIZE} of {_SIZE} hbm'), True),
  (
    re.compile(rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)'),
    False,
  ),
)


@dataclasses.dataclass(frozen=True)
class Memory:
  """Bytes of one device.

  Attributes:
    parameters: of the model.
    optimizer: of its state.
    batch: and all other arguments, with what tiles of memory leave unused.
    temporary: gradients, activations and the like, at the worst moment.
    program: the compiled code.
  """

  parameters: float
  optimizer: float
  batch: float
  temporary: float
  program: float

  @property
  def total(self) -> float:
    return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class Compiled:
  """What the compiler said of a step.

  Attributes:
    fits: whether it fits into the memory of a device.
    memory: what it needs.
    text: scheduled HLO; None if it does not fit.
  """

  fits: bool
  memory: Memory
  text: str | None


def describe_devices(topology: topology_lib.Topology) -> list:
  """Returns devices of a slice to compile for, without any hardware.

  Sets environment variables that keep libtpu from looking for a TPU, and from
  refusing a second program that looks for none either.

  Raises:
    errors.UserError: if libtpu is missing or does not know the topology.
  """
  if importlib.util.find_spec('libtpu') is None:
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
      f'the TPU compiler refuses {topology.name}: {_first_line(error)}; use '
      'another --topology.'
    ) from error
  return found.devices


def usable_memory(device) -> int:
  """Returns the bytes of a device that programs may use.

  Asks the compiler, with a program that fits nowhere.
  """
  placed = SingleDeviceSharding(device)
  huge = jax.ShapeDtypeStruct((2**19, 2**19), jnp.float32, sharding=placed)
  try:
    jax.jit(lambda x: x @ x @ x).lower(huge).compile()
  except jax.errors.JaxRuntimeError as error:
    return _limits(error)[1]
  raise ValueError('a program of 3 TiB fits: the limit cannot be found.')


def compile_step(config, phase, mesh) -> Compiled:
  """Compiles the step that `train.fit` would.

  Args:
    config: the experiment.
    phase: one of `task.phases`.
    mesh: of `sharding.make_mesh`, over described devices.

  Raises:
    errors.UserError: if the model cannot be split over the mesh, or the
      compiler fails otherwise than for lack of memory.
  """
  config = tuning.resolve(config, mesh.devices.flat[0])
  objective = pretrain.objective(config)
  state, batch, key = arguments(config, phase, mesh)
  lowered = step_lib.jitted(config, objective, phase, mesh).lower(
    state, batch, key
  )
  parameters, optimizer = map(device_bytes, (state.params, state.opt_state))
  try:
    compiled = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    needed, _, arguments_too = _limits(error)
    known = parameters + optimizer, device_bytes(batch)
    temporary = needed - sum(known) if arguments_too else needed
    memory = Memory(parameters, optimizer, known[1], max(temporary, 0), 0)
    return Compiled(False, memory, None)
  found = compiled.memory_analysis()
  memory = Memory(
    parameters=parameters,
    optimizer=optimizer,
    batch=found.argument_size_in_bytes - parameters - optimizer,
    # The peak has the arguments in it. `temp_size_in_bytes` is not what lives
    # at once: it can be more than the memory of a program that fits.
    temporary=found.peak_memory_in_bytes - found.argument_size_in_bytes,
    program=found.generated_code_size_in_bytes,
  )
  return Compiled(True, memory, compiled.as_text())


def arguments(config, phase, mesh):
  """Returns (state, batch, key) of a step as sharded shapes.

  Args: as `compile_step`, the config resolved.
  """
  init = functools.partial(
    step_lib.init_state,
    task=pretrain.objective(config),
    tx=optim.make(config.optimizer),
  )
  state = jax.eval_shape(init, jax.random.key(0))
  key = jax.eval_shape(lambda: step_lib.run_key(config))
  batch = pretrain.batch_shapes(config, phase)
  return (
    _placed(state, partition.state(mesh, state)),
    jax.tree.map(lambda x: _place(x, sharding.rows(mesh)), batch),
    _place(key, sharding.replicated(mesh)),
  )


def gradient_bytes(config, mesh) -> int:
  """Returns the float32 bytes of what a device finds before it is added up."""
  module = pretrain.trained_module(config)
  params = jax.eval_shape(lambda: pretrain.init(module, jax.random.key(0)))
  return device_bytes(
    names.map_named(
      lambda name, x: _place(
        x, NamedSharding(mesh, partition.used(mesh, name, x.shape))
      ),
      params,
    )
  )


def device_bytes(tree) -> int:
  """Returns the bytes that sharded shapes take on one device."""
  return sum(
    math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
    for x in jax.tree.leaves(tree)
  )


def _placed(shapes, shardings):
  return jax.tree.map(_place, shapes, shardings)


def _place(x, placed):
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed)


def _limits(error) -> tuple[int, int, bool]:
  """Reads what the compiler says of a program that does not fit.

  Returns:
    (bytes that it needs, bytes that there are, whether the first have the
    arguments in them).
  """
  for pattern, arguments_too in _NEEDED:
    found = pattern.search(str(error))
    if found:
      needed, unit, there, there_unit = found.groups()
      return (
        round(float(needed) * _UNITS[unit]),
        round(float(there) * _UNITS[there_unit]),
        arguments_too,
      )
  raise errors.UserError(
    f'the TPU compiler fails: {_first_line(error)}; if it goes on about a '
    'kernel, try --config.compute.attention=xla.'
  ) from error


def _first_line(error) -> str:
  return str(error).strip().splitlines()[0].rstrip('.')
