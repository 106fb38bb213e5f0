"""Says in one line what to do where the memory of a device is too small.

The TPU compiler refuses such programs (`compilation`). XLA compiles them for a
GPU, where they fail when they first run, at step 0 or when a phase begins: they
are refused here, before the first step, by the memory that XLA will ask for.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.train import task as task_lib

_EXHAUSTED = 'RESOURCE_EXHAUSTED'


def check(
  config: config_dict.ConfigDict,
  phase: task_lib.Phase,
  executables: dict[str, jax.stages.Compiled],
  mesh: Mesh,
):
  """Raises errors.UserError if a program needs more memory than a GPU has.

  Args:
    executables: {name: executable} of the phase.
  """
  available = _get_limit(mesh)
  if available is None:
    return
  # Evaluation is given the parameters only, but the optimizer stays.
  resident = max(map(_count_arguments, executables.values()))
  for name, executable in executables.items():
    needed = count_needed(executable, resident)
    if needed is not None and needed > available:
      raise errors.UserError(
        f'the {name} at length {phase.seq_length} does not fit: '
        + _describe(config, phase, executable, needed, mesh, available)
      )


@contextlib.contextmanager
def explaining(
  config: config_dict.ConfigDict,
  phase: task_lib.Phase,
  executables: dict[str, jax.stages.Compiled],
  mesh: Mesh,
) -> Iterator[None]:
  """Turns a lack of memory in the body into errors.UserError."""
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if _EXHAUSTED not in str(error):
      raise
    there = mesh, _get_limit(mesh)
    largest = max(executables.values(), key=lambda x: count_needed(x) or 0)
    raise errors.UserError(
      f'out of memory in phase {phase.number}, at length {phase.seq_length}: '
      + _describe(config, phase, largest, count_needed(largest), *there)
      + f' ({errors.first_line(error)})'
    ) from error


@contextlib.contextmanager
def explaining_start(state: Any, mesh: Mesh) -> Iterator[None]:
  """Turns a lack of memory for the state itself into errors.UserError.

  Args:
    state: tree of jax.ShapeDtypeStruct with their shardings.
    mesh: as in `check`.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if _EXHAUSTED not in str(error):
      raise
    needed = sum(
      math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
      for x in jax.tree.leaves(state)
    )
    raise errors.UserError(
      'out of memory before the first step: parameters and optimizer need '
      f'{needed / 2**30:.2f} GiB of {_describe_limit(_get_limit(mesh))}; see '
      'whether another program uses it, or use more or larger devices '
      f'({errors.first_line(error)})'
    ) from error


def count_needed(
  executable: jax.stages.Compiled, resident: int = 0
) -> int | None:
  """Returns the bytes that a program needs on a device; None if unknown.

  Args:
    resident: bytes that are there while it runs, its arguments among them.
  """
  found = executable.memory_analysis()
  if found is None:
    return None
  return (
    max(found.argument_size_in_bytes, resident)
    + found.output_size_in_bytes
    - found.alias_size_in_bytes  # outputs in the place of arguments
    + found.temp_size_in_bytes
  )


def _count_arguments(executable) -> int:
  found = executable.memory_analysis()
  return 0 if found is None else found.argument_size_in_bytes


def _describe(config, phase, executable, needed, mesh, available) -> str:
  """Returns what is needed, what there is and what would fit."""
  size = 'an unknown amount' if needed is None else f'{needed / 2**30:.2f} GiB'
  there = _describe_limit(available)
  parts = None
  if needed is not None:
    temporary = executable.memory_analysis().temp_size_in_bytes
    parts = find_accumulate(
      *(phase, mesh.shape['data'], needed - temporary, temporary, available)
    )
  ways = [f'phases.accumulate={parts}' if parts else 'larger devices']
  if config.compute.remat != 'layer':
    ways.append('compute.remat=layer')
  return f'it needs {size} of {there}; try {" or ".join(ways)}'


def find_accumulate(
  phase: task_lib.Phase,
  shares: int,
  fixed: int,
  temporary: int,
  available: int | None,
) -> int | None:
  """Returns the least phases.accumulate that should fit; None if none does.

  Temporary memory is taken to be proportional to the rows of a micro-batch.

  Args:
    phase: the phase that does not fit.
    shares: devices that share the rows.
    fixed: bytes of a device that do not depend on the rows.
    temporary: bytes of a device that do.
    available: bytes of a device; None if unknown: then the next possible value
      is returned.
  """
  rows = phase.batch_size // shares
  more = [n for n in range(phase.accumulate + 1, rows + 1) if rows % n == 0]
  if available is None:
    return next(iter(more), None)
  each = temporary * phase.accumulate
  return next((n for n in more if fixed + each / n <= available), None)


def _describe_limit(available) -> str:
  return 'a device' if available is None else f'{available / 2**30:.2f} GiB'


def _get_limit(mesh) -> int | None:
  """Returns the bytes that jax may use on a GPU; None on other devices."""
  device = mesh.local_devices[0]
  if device.platform != 'gpu':
    return None
  return (device.memory_stats() or {}).get('bytes_limit')
