"""Tests of shares along `data`, on four devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from bert_jax import collectives


def on_devices(function, x, out):
  """Runs a function on four devices; device d has x[d]."""
  mesh = jax.make_mesh((4,), ('data',), axis_types=(AxisType.Auto,))
  run = jax.shard_map(
    lambda x: function(x[0]),
    mesh=mesh,
    in_specs=P('data'),
    out_specs=out,
    check_vma=False,
  )
  return jax.jit(run)(x)


@pytest.fixture(autouse=True)
def few(monkeypatch):
  monkeypatch.setattr(collectives, '_ONE_STAGE', 1)


@pytest.mark.parametrize('slices', [0, 1, 2, 4])
@pytest.mark.parametrize('shape, axis', [((8,), 0), ((2, 8, 3), 1)])
def test_each_device_gets_its_part_of_the_sum(shape, axis, slices):
  x = jnp.arange(4 * np.prod(shape), dtype=jnp.float32).reshape(4, *shape)
  spec = P(*[None] * axis, 'data')
  found = on_devices(
    lambda own: collectives.scatter(own, axis, 4, slices), x, spec
  )
  np.testing.assert_array_equal(found, x.sum(0))


@pytest.mark.parametrize('slices', [0, 1, 2, 4])
@pytest.mark.parametrize('shape, axis', [((8,), 0), ((2, 8, 3, 5), 1)])
def test_parts_come_together_in_order(shape, axis, slices):
  whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  parts = jnp.stack(np.split(whole, 4, axis))
  found = on_devices(
    lambda own: collectives.gather(own, axis, 4, slices), parts, P()
  )
  np.testing.assert_array_equal(found, whole)


def test_a_large_slice_has_groups_of_the_root():
  assert collectives._stages(4, 1) == [[[0, 2], [1, 3]], [[0, 1], [2, 3]]]
  sizes = [len(groups[0]) for groups in collectives._stages(32, 1)]
  assert sizes == [8, 4]
  assert collectives._stages(3, 1) == [[[0, 1, 2]]]  # a prime


def test_slices_exchange_shares_alone():
  assert collectives._stages(8, 2) == [
    [[0, 2], [1, 3], [4, 6], [5, 7]],
    [[0, 1], [2, 3], [4, 5], [6, 7]],
    [[0, 4], [1, 5], [2, 6], [3, 7]],
  ]
