"""Tests of the mesh."""

import dataclasses
import itertools
import types

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import device_mesh


def fake_slices(slices, each):
  """Returns stand-ins for devices, the slices shuffled together."""
  return [
    types.SimpleNamespace(
      id=s * each + i,
      slice_index=s,
      process_index=s,
      platform='cpu',
      device_kind='cpu',
    )
    for i in range(each)
    for s in reversed(range(slices))
  ]


def test_the_mesh_is_data_by_model():
  mesh = device_mesh.make_mesh(2)
  assert dict(mesh.shape) == {'data': 2, 'model': 2}
  assert [[d.id for d in row] for row in mesh.devices] == [[0, 1], [2, 3]]
  assert set(mesh.axis_types) == {jax.sharding.AxisType.Auto}
  assert dict(device_mesh.make_mesh().shape) == {'data': 4, 'model': 1}


def test_slices_are_outermost_in_data():
  devices = device_mesh._arrange(fake_slices(2, 4), 2)
  assert [[d.slice_index for d in row] for row in devices] == [
    [0, 0],
    [0, 0],
    [1, 1],
    [1, 1],
  ]
  assert sorted(d.id for d in devices.flat) == list(range(8))


def test_slices_are_those_of_tpus():
  for slices, platform, counted in (
    (1, 'tpu', 1),
    (2, 'tpu', 2),
    (1, 'cpu', 0),
  ):
    devices = np.array(fake_slices(slices, 4))
    for device in devices:
      device.platform = platform
    mesh = types.SimpleNamespace(devices=devices[:, None])
    assert device_mesh.count_slices(mesh) == counted


@pytest.mark.parametrize(
  'bounds, cores, row',
  [
    ((4, 4, 1), 1, 4),
    ((8, 4, 1), 1, 8),
    ((4, 8, 1), 1, 8),
    ((2, 2, 4), 1, 4),
    ((2, 2, 4), 2, 8),
    ((4, 4, 2), 1, 0),  # not known
    ((8, 8, 1), 1, 0),  # too large
    ((2, 2, 1), 2, 0),  # few enough for one stage
  ],
)
def test_rows_and_columns_of_a_slice_are_lines_or_rings(bounds, cores, row):
  devices = [
    types.SimpleNamespace(platform='tpu', coords=place, core_on_chip=core)
    for place in np.ndindex(bounds)
    for core in range(cores)
  ]
  np.random.default_rng(0).shuffle(devices)
  found = device_mesh._find_rows(devices)
  assert (0 if found is None else found.shape[1]) == row
  if row:
    mesh = types.SimpleNamespace(devices=found.reshape(-1, 1))
    assert device_mesh.find_row(mesh) == row
    for line in (*found, *found.T):
      for one, other in itertools.pairwise(line):
        assert np.abs(np.subtract(one.coords, other.coords)).sum() <= 1


@pytest.mark.parametrize(
  'slices, each, model, message',
  [
    (1, 4, 3, 'mesh.model=3 does not divide the 4 devices; use a divisor of 4'),
    # It divides the six, but would lie across the slower network.
    (2, 3, 2, 'mesh.model=2 does not divide the 3 devices of a slice'),
  ],
)
def test_a_model_axis_that_does_not_fit(slices, each, model, message):
  with pytest.raises(errors.UserError, match=message):
    device_mesh._arrange(fake_slices(slices, each), model)


@pytest.mark.parametrize(
  'model, message',
  [
    (1, 'by 4 devices x 2 micro-batches; use a multiple of 8'),
    (2, 'by 2 groups of 2 devices x 2 micro-batches; use a multiple of 4'),
  ],
)
def test_a_batch_that_cannot_be_shared(model, message):
  mesh = device_mesh.make_mesh(model)
  with pytest.raises(errors.UserError, match=message):
    device_mesh.check_batch(mesh, 6, 2)
  device_mesh.check_batch(mesh, 8, 2)


@dataclasses.dataclass(frozen=True)
class Device:
  """A stand-in for a device."""

  id: int


@pytest.mark.parametrize(
  'count, model, groups', [(96, 1, 32), (4096, 2, 16), (38, 1, 19)]
)
def test_many_devices_write_a_checkpoint_in_groups(count, model, groups):
  devices = np.array([Device(i) for i in range(count)])
  mesh = jax.sharding.Mesh(devices.reshape(-1, model), ('data', 'model'))
  writers = device_mesh.group_writers(mesh)
  assert writers.shape['data'] == groups
  assert list(writers.devices.flat) == list(devices)
  assert device_mesh.group_writers(device_mesh.make_mesh()) is None
