"""Tests of shares along `data`, on four devices, and on eight elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from bert_jax.parallel import collectives
from tests import environment, processes


def on_devices(count, function, x, out):
  """Runs a function on so many devices; device d has x[d]."""
  mesh = jax.make_mesh((count,), ('data',), axis_types=(AxisType.Auto,))
  run = jax.shard_map(
    lambda x: function(x[0]),
    mesh=mesh,
    in_specs=P('data'),
    out_specs=out,
    check_vma=False,
  )
  return jax.jit(run)(x)


def check_scatter(count, slices, shape, axis, row=0):
  x = jnp.arange(count * np.prod(shape), dtype=jnp.float32)
  x = x.reshape(count, *shape)

  def scatter(own):
    return collectives.scatter(own, axis, count, slices, row)

  parts = on_devices(count, scatter, x, P(*[None] * axis, 'data'))
  np.testing.assert_array_equal(parts, x.sum(0))


def check_gather(count, slices, shape, axis):
  whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  parts = jnp.stack(np.split(whole, count, axis))

  def gather(own):
    return collectives.gather(own, axis, count, slices)

  np.testing.assert_array_equal(on_devices(count, gather, parts, P()), whole)


@pytest.fixture
def few(monkeypatch):
  monkeypatch.setattr(collectives, '_ONE_STAGE', 1)


@pytest.mark.parametrize('slices', [0, 2, 4])
@pytest.mark.parametrize('shape, axis', [((8,), 0), ((2, 8, 3, 5), 1)])
def test_each_device_gets_its_part_of_the_sum_and_parts_come_together(
  few, shape, axis, slices
):
  check_scatter(4, slices, shape, axis)
  check_gather(4, slices, shape, axis)


def on_eight():
  """Two slices of four, each in two stages: no two sizes are the same."""
  collectives._ONE_STAGE = 2
  check_scatter(8, 2, (2, 16, 3), 1)
  check_gather(8, 2, (2, 16, 3), 1)
  collectives._LARGE = 1
  for row, shape, axis in (2, (2, 16, 4), 1), (4, (16, 6), 0), (4, (8, 3), 0):
    check_scatter(8, 1, shape, axis, row)
  print('eight are right')


def test_three_stages_on_eight_devices():
  env = environment.for_devices(8)
  code = 'from tests.parallel import collectives_test as t; t.on_eight()'
  done = processes.run_code(code, env=env)
  assert done.stdout == 'eight are right\n', done.stderr


def test_a_large_slice_has_groups_of_the_root(few):
  assert collectives._stages(4, 1) == [[[0, 2], [1, 3]], [[0, 1], [2, 3]]]
  sizes = [len(groups[0]) for groups in collectives._stages(32, 1)]
  assert sizes == [8, 4]
  assert collectives._stages(3, 1) == [[[0, 1, 2]]]  # a prime


def test_slices_exchange_shares_alone(few):
  assert collectives._stages(8, 2) == [
    [[0, 2], [1, 3], [4, 6], [5, 7]],
    [[0, 1], [2, 3], [4, 5], [6, 7]],
    [[0, 4], [1, 5], [2, 6], [3, 7]],
  ]
  assert collectives._stages(2, 2) == [[[0, 1]]]  # one device of each


def test_large_arrays_go_around_rings_where_rows_are_known():
  assert collectives.uses_rings((512, 2048), 1, row=4)
  assert not collectives.uses_rings((512, 2048), 1, row=0)
  assert not collectives.uses_rings((128, 512), 1, row=4)  # BERT-Tiny's
  assert not collectives.uses_rings((511, 2048), 1, row=4)  # has no halves
