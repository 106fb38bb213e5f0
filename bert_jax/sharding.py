"""Where arrays live: one mesh of all devices, batches split over `data`."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import errors


def make_mesh() -> Mesh:
  """Returns the mesh of all devices, along `data`."""
  # jax.make_mesh defaults to Explicit axes, under which linen's embedding
  # lookup of a sharded batch raises.
  return jax.make_mesh(
    (jax.device_count(),), ('data',), axis_types=(AxisType.Auto,)
  )


def replicated(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, P())


def rows(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of a batch: its rows over `data`."""
  return NamedSharding(mesh, P('data'))


def check_batch(mesh: Mesh, batch_size: int, accumulate: int):
  """Raises errors.UserError unless every device gets equal micro-batches."""
  n = mesh.shape['data'] * accumulate
  if batch_size % n:
    raise errors.UserError(
      f'phases.batch_size={batch_size} is not divisible by '
      f'{mesh.shape["data"]} devices x {accumulate} micro-batches; use a '
      f'multiple of {n}.'
    )


def put_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
  """Copies a batch of the host to the devices, its rows split over them."""
  return jax.device_put(batch, rows(mesh))
