"""Says in one line what to do if the memory of a device is too small.

The TPU compiler refuses such programs. XLA compiles them for a GPU, where they
would fail when they first run: they are refused here, before the first step, by
the memory that XLA will ask for.
"""

import dataclasses
import math
import re
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax import errors
from bert_jax.trainer.task import Phase

_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
_SIZE = r'([\d.]+)([KMGT]?)'
# The TPU compiler's two messages for a program that does not fit, and whether
# the bytes that they name include the program's arguments.
_NEEDED = {
  f'Used {_SIZE} of {_SIZE} hbm': True,
  rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)': False,
}


@dataclasses.dataclass(frozen=True)
class Shortage:
  """Memory that a program needs, if the compiler says that it does not fit.

  Attributes:
    needed: bytes per device.
    available: bytes per device that programs may use.
    with_arguments: whether `needed` includes the program's arguments.
  """

  needed: int
  available: int
  with_arguments: bool


def parse(error: Exception) -> Shortage | None:
  """Reads a shortage of memory from an error; None if it is another error."""
  for pattern, with_arguments in _NEEDED.items():
    if found := re.search(pattern, str(error)):
      needed, unit, available, available_unit = found.groups()
      return Shortage(
        round(float(needed) * _UNITS[unit]),
        round(float(available) * _UNITS[available_unit]),
        with_arguments,
      )
  return None


def describe(missing: Shortage, of_phase: bool) -> str:
  """Describes what the TPU compiler refused, and what to do."""
  ways = 'use more or larger devices, or mesh.model'
  if of_phase:
    ways = f'raise phases.accumulate, set compute.remat=layer, or {ways}'
  return (
    f'does not fit: it needs {missing.needed / 2**30:.2f} GiB of the '
    f'{missing.available / 2**30:.2f} GiB of a device; {ways}'
  )


def check(
  remat: str,
  phase: Phase,
  executables: dict[str, jax.stages.Compiled],
  state: Any,
  mesh: Mesh,
):
  """Raises errors.UserError if a program needs more memory than a GPU has.

  Args:
    state: shapes of the run's state, with shardings.
  """
  available = _get_limit(mesh)
  if available is None:
    return
  # Evaluation is given the parameters only, but the optimizer stays.
  resident = count_bytes(state)
  for name, executable in executables.items():
    needed = count_needed(executable, resident)
    if needed is None or needed <= available:
      continue
    temporary = executable.memory_analysis().temp_size_in_bytes
    parts = find_accumulate(
      *(phase, mesh.shape['data'], needed - temporary, temporary, available)
    )
    ways = [f'phases.accumulate={parts}' if parts else 'larger devices']
    ways += ['compute.remat=layer'] * (remat != 'layer')
    raise errors.UserError(
      f'the {name} of phase {phase.number}, at length {phase.seq_length}, does '
      f'not fit: it needs {needed / 2**30:.2f} GiB of {available / 2**30:.2f} '
      f'GiB; try {" or ".join(ways)}'
    )


def count_needed(
  executable: jax.stages.Compiled, resident: int = 0
) -> int | None:
  """Returns the bytes that a program needs on a device; None if unknown.

  Args:
    resident: bytes that are there while it runs, such as the run's state, which
      its arguments may be part of.
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


def count_bytes(tree: Any) -> int:
  """Returns the bytes that sharded shapes take on one device."""
  return sum(
    math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
    for x in jax.tree.leaves(tree)
  )


def find_accumulate(
  phase: Phase, shares: int, fixed: int, temporary: int, available: int
) -> int | None:
  """Returns the least phases.accumulate that should fit; None if none does.

  Temporary memory is taken to be proportional to the rows of a micro-batch.

  Args:
    shares: devices that share the rows.
    fixed: bytes of a device that do not depend on the rows.
    temporary: bytes of a device that do.
    available: bytes of a device.
  """
  rows = phase.batch_size // shares
  more = [n for n in range(phase.accumulate + 1, rows + 1) if rows % n == 0]
  each = temporary * phase.accumulate
  return next((n for n in more if fixed + each / n <= available), None)


def _get_limit(mesh) -> int | None:
  """Returns the bytes that jax may use on a GPU; None on other devices."""
  device = mesh.local_devices[0]
  if device.platform != 'gpu':
    return None
  return (device.memory_stats() or {}).get('bytes_limit')
