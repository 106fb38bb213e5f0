"""The device mesh, and batches sharded over it."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import errors

_MOST_IN_RINGS = 32  # devices
_WRITERS = 32  # shards of an array in a checkpoint, at most


def make_mesh(
  model: int = 1, devices: Sequence[jax.Device] | None = None
) -> Mesh:
  """Returns the mesh (data, model) of all devices, or of those given.

  `model` devices share each layer. Of several TPU slices, which a slower network
  connects, slices are outermost in `data`.
  """
  devices = jax.devices() if devices is None else list(devices)
  # jax.make_mesh defaults to Explicit axes, under which linen's embedding
  # lookup of a sharded batch raises.
  return Mesh(
    _arrange(devices, model), ('data', 'model'), axis_types=(AxisType.Auto,) * 2
  )


def group_writers(mesh: Mesh) -> Mesh | None:
  """Returns the mesh by which checkpoints are laid out; None if it is `mesh`.

  Each shard becomes a chunk of a file, thousands of each array on thousands of
  devices. So `data` is divided into groups, whose devices hold the same.
  """
  devices, model = mesh.devices, mesh.shape['model']
  most = max(1, _WRITERS // model)
  if len(devices) <= most:
    return None
  groups = max(n for n in range(1, most + 1) if len(devices) % n == 0)
  return Mesh(
    devices.reshape(groups, -1, model),
    ('data', 'copies', 'model'),
    axis_types=(AxisType.Auto,) * 3,
  )


def _arrange(devices, model) -> np.ndarray:
  """Returns the devices [data, model], physical neighbours close together."""
  slices = _count_slices(devices)
  each = len(devices) // slices
  if each % model:
    raise errors.UserError(
      f'mesh.model={model} does not divide the {each} devices'
      f'{" of a slice" if slices > 1 else ""}; use a divisor of {each}.'
    )
  shape = (each // model, model)
  rows = _find_rows(devices) if model == slices == 1 else None
  if rows is not None:
    return rows.reshape(shape)
  if slices == 1:
    return mesh_utils.create_device_mesh(shape, devices)
  return mesh_utils.create_hybrid_device_mesh(shape, (slices, 1), devices)


def _find_rows(devices) -> np.ndarray | None:
  """Returns a TPU slice as rows of devices; None if no rows are known.

  In each row and each column, devices that follow each other, and the last and
  the first, are neighbours, or on a line, whose links back are free. A slice of
  2 x 2 x n chips has a row for each 2 x 2, others of three axes are not known.
  Small slices need only one stage, large ones thousands of permutations.
  """
  if devices[0].platform != 'tpu' or not 8 < len(devices) <= _MOST_IN_RINGS:
    return None
  found = {(*d.coords, getattr(d, 'core_on_chip', 0)): d for d in devices}
  x, y, z, cores = (max(place) + 1 for place in zip(*found, strict=True))
  if len(found) < x * y * z * cores or (z > 1 and not x == y == 2):
    return None
  if z > 1:
    rows = [[(0, 0, i), (1, 0, i), (1, 1, i), (0, 1, i)] for i in range(z)]
  elif x < y:
    rows = [[(i, j, 0) for j in range(y)] for i in range(x)]
  else:
    rows = [[(i, j, 0) for i in range(x)] for j in range(y)]
  return np.array(
    [[found[*at, c] for at in row for c in range(cores)] for row in rows]
  )


def find_row(mesh: Mesh) -> int:
  """Returns the devices of a row of `data`, or 0, see `_find_rows`."""
  devices = mesh.devices
  one = devices.shape[1] == count_slices(mesh) == 1
  rows = _find_rows(devices.flat) if one else None
  if rows is None or list(rows.flat) != list(devices.flat):
    return 0
  return rows.shape[1]


def _count_slices(devices) -> int:
  return len({getattr(d, 'slice_index', 0) for d in devices})


def count_slices(mesh: Mesh) -> int:
  """Returns the number of TPU slices of a mesh; 0 for other devices."""
  devices = mesh.devices.flat
  return _count_slices(devices) if devices[0].platform == 'tpu' else 0


def replicate(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, P())


def row_sharding(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of a batch: its rows over `data`."""
  return NamedSharding(mesh, P('data'))


def check_batch(mesh: Mesh, batch_size: int, accumulate: int):
  """Raises errors.UserError unless every device gets equal micro-batches."""
  n, model = mesh.shape['data'] * accumulate, mesh.shape['model']
  if batch_size % n:
    raise errors.UserError(
      f'phases.batch_size={batch_size} is not divisible by '
      f'{mesh.shape["data"]} {f"groups of {model} " if model > 1 else ""}'
      f'devices x {accumulate} micro-batches; use a multiple of {n}.'
    )


def find_own_rows(mesh: Mesh, size: int) -> np.ndarray:
  """Returns the rows of a batch [B, ...] that this process's devices hold.

  They are int [b], ascending, and need not be contiguous, since the mesh
  follows the physical links between the chips.
  """
  blocks = row_sharding(mesh).addressable_devices_indices_map((size,)).values()
  return np.unique(np.concatenate([np.arange(size)[b] for b in blocks]))


def put_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
  """Returns the global batch [B, ...] on the devices, with sharded rows.

  Args:
    batch: leaves [b, ...], this process's rows in the order of `find_own_rows`.
  """
  # With several hosts, jax's guard takes this explicit transfer for implicit.
  with jax.transfer_guard_host_to_device('allow'):
    return {
      name: jax.make_array_from_process_local_data(row_sharding(mesh), x)
      for name, x in batch.items()
    }
