"""Finds out, before the first step, that a program needs too much memory.

The TPU compiler refuses such programs. XLA compiles them for a GPU, where they
would fail when they first run: they are refused here, by the memory that XLA
will ask for.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from bert_jax import errors

_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
_SIZE = r'([\d.]+)([KMGT]?)'
# The TPU compiler's two messages for a program that does not fit, and whether
# the bytes that they name include the program's arguments.
_NEEDED = {
  f'Used {_SIZE} of {_SIZE} hbm': True,
  rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)': False,
}


class Shortage(NamedTuple):
  """Bytes of a device that a program needs, and that programs may use."""

  needed: int
  available: int
  with_arguments: bool  # whether `needed` includes the program's arguments


def parse(error: Exception) -> Shortage | None:
  """Reads a shortage of memory from an error; None if it is another error."""
  for pattern, with_arguments in _NEEDED.items():
    if found := re.search(pattern, str(error)):
      number, unit, most, unit_of_most = found.groups()
      needed = round(float(number) * _UNITS[unit])
      available = round(float(most) * _UNITS[unit_of_most])
      return Shortage(needed, available, with_arguments)
  return None


def describe(needed: int, available: int, of_phase: bool) -> str:
  """Describes a program that does not fit, and what to do."""
  ways = 'use more or larger devices, or mesh.model'
  if of_phase:
    ways = f'raise phases.accumulate, set compute.remat=layer, or {ways}'
  return (
    f'does not fit: it needs {needed / 2**30:.2f} GiB of the '
    f'{available / 2**30:.2f} GiB of a device; {ways}'
  )


def check(outcomes: Sequence[Any], state: Any, mesh: Mesh):
  """Raises errors.UserError if a program needs more memory than a GPU has.

  The state, given as shapes with shardings, stays while the model is evaluated.
  """
  device = mesh.local_devices[0]
  if device.platform != 'gpu':
    return
  available = (device.memory_stats() or {}).get('bytes_limit', math.inf)
  for program, executable in ((x.program, x.executable) for x in outcomes):
    needed = count_needed(executable, count_bytes(state))
    if needed is not None and needed > available:
      why = describe(needed, available, program.phase is not None)
      raise errors.UserError(f'the {program.title} {why}.')


def count_needed(
  executable: jax.stages.Compiled, resident: int = 0
) -> int | None:
  """Returns the bytes that a program needs on a device; None if unknown.

  Its arguments may be part of what is resident, such as the run's state.
  """
  found = executable.memory_analysis()
  if found is None:
    return None
  return (
    max(found.argument_size_in_bytes, resident)
    + found.output_size_in_bytes
    - found.alias_size_in_bytes  # aliased outputs
    + found.temp_size_in_bytes
  )


def count_bytes(tree: Any) -> int:
  """Returns the bytes that sharded shapes take on one device."""
  return sum(
    math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
    for x in jax.tree.leaves(tree)
  )
