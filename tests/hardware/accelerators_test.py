"""What names of accelerators stand for."""

import pytest

from bert_jax import errors
from bert_jax.hardware import accelerators


@pytest.mark.parametrize(
  'text, name, chips, devices, hosts',
  [
    ('v5e:4x4', 'v5e:4x4', 16, 16, 4),
    ('v5litepod-16', 'v5e:4x4', 16, 16, 4),
    ('v4:2x2x4', 'v4:2x2x4', 16, 16, 4),
    ('v4-32', 'v4:2x2x4', 16, 16, 4),
    ('v2-8', 'v2:2x2', 4, 8, 1),
    ('v3-32', 'v3:4x4', 16, 32, 4),
    ('v5p-8', 'v5p:2x2x1', 4, 4, 1),
    ('v6e-16', 'v6e:4x4', 16, 16, 4),
    ('tpu7x-8', 'tpu7x:2x2x1', 4, 8, 1),
    ('V5LITEPOD-8', 'v5e:2x4', 8, 8, 1),
    ('v6e-1', 'v6e:1x1', 1, 1, 1),
    ('h100:8', 'h100:8', 8, 8, 1),
  ],
)
def test_name_is_read(text, name, chips, devices, hosts):
  found = accelerators.parse(text)
  assert (found.name, found.chips) == (name, chips)
  assert (found.devices, found.hosts) == (devices, hosts)


def test_slices_multiply_chips_devices_and_hosts():
  found = accelerators.parse('v3-32', slices=3)
  assert (found.chips, found.devices, found.hosts) == (48, 96, 12)
  assert accelerators.parse('h100:8', slices=2).hosts == 2
  with pytest.raises(errors.UserError, match='--slices=0'):
    accelerators.parse('v5e:4x4', slices=0)


def test_compiler_options_are_those_of_the_chip():
  assert accelerators.parse('v4-8').options == {'chip_config_name': 'megacore'}
  assert accelerators.parse('v5p-8').options == {}
  bounds = {'chips_per_host_bounds': [2, 4, 1]}
  assert accelerators.parse('v5litepod-8').options == bounds


def test_every_listed_name_is_read():
  known = accelerators.list_names()
  assert len(known) > 100
  for name in known:
    assert accelerators.parse(name).chips >= 1


@pytest.mark.parametrize(
  'text, near',
  [
    ('v4-30', 'v4-32'),
    ('v6e:6x6', 'v6e:'),
    ('v5e:0x4', 'v5e:'),
    ('v5litpod-16', 'v5litepod-16'),
    ('v4:2x2', 'v4:2x2x1'),
    ('v4:2x3x2', 'v4:2x2x2'),
    ('h100:9', 'h100:8'),
    ('banana', 'v4-32'),
  ],
)
def test_impossible_name_is_refused_with_near_ones(text, near):
  with pytest.raises(errors.UserError, match='does not exist') as error:
    accelerators.parse(text)
  assert near in str(error.value)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'name, links',
  [
    ('v5e:2x2', (1, 1)),
    ('v5e:4x4', (1, 1)),
    ('v5e:8x16', (1, 2)),
    ('v6e:16x16', (2, 2)),
    ('v6e:1x1', (0, 0)),
    ('v3:16x16', (1, 1)),
    ('v2:16x16', (2, 2)),
    ('v4:2x2x1', (1, 1, 0)),
    ('v4:2x2x4', (1, 1, 1)),
    ('v5p:4x4x4', (2, 2, 2)),
    ('tpu7x:4x4x8', (2, 2, 2)),
  ],
)
def test_a_chip_has_the_links_of_its_place(name, links):
  assert accelerators.parse(name).axis_links == links


@pytest.mark.parametrize(
  'text, name',
  [
    ('v5e:4x4', 'v5litepod-16'),
    ('v4:2x2x4', 'v4-32'),
    ('v6e-8', 'v6e-8'),
    ('v4:2x2x6', None),  # not the usual grid of 24 chips
    ('h100:8', None),
  ],
)
def test_cloud_name_is_that_of_the_usual_grid(text, name):
  assert accelerators.cloud_name(accelerators.parse(text)) == name
