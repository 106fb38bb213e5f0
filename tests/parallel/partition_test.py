"""Tests of which array lies where."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import config, errors, param_names
from bert_jax.model import parameters
from bert_jax.parallel import device_mesh, partition
from bert_jax.pretraining import pretrain
from bert_jax.trainer import optimizer, programs
from bert_jax.trainer.step import init_state
from tests import training

# The model of tests.training: D=8, H=2, K=4, F=12, V=11 in 256 rows, on 2 x 2
# devices: (as it is computed with, as it is kept).
LAYER = {
  'attention/out/bias': (P(None), P('data')),
  'attention/out/kernel': (P('model', None, None), P('model', None, 'data')),
  'attention/qkv/bias': (P(None, 'model', None), P(None, 'model', 'data')),
  'attention/qkv/kernel': (
    P(None, None, 'model', None),
    P('data', None, 'model', None),
  ),
  'attention_norm/bias': (P(None), P('data')),
  'attention_norm/scale': (P(None), P('data')),
  'mlp_in/bias': (P('model'), P('model')),
  'mlp_in/kernel': (P(None, 'model'), P('data', 'model')),
  'mlp_norm/bias': (P(None), P('data')),
  'mlp_norm/scale': (P(None), P('data')),
  'mlp_out/bias': (P(None), P('data')),
  'mlp_out/kernel': (P('model', None), P('model', 'data')),
}
SPECS = {
  'embeddings/norm/bias': (P(None), P('data')),
  'embeddings/norm/scale': (P(None), P('data')),
  'embeddings/position/embedding': (P(None, None), P(None, 'data')),
  'embeddings/type/embedding': (P(None, None), P(None, 'data')),
  'embeddings/word/embedding': (P('model', None), P('model', 'data')),
  **{f'encoder/layer_0/{name}': specs for name, specs in LAYER.items()},
  'mlm/bias': (P('model'), P('model')),
  'mlm/norm/bias': (P(None), P('data')),
  'mlm/norm/scale': (P(None), P('data')),
  'mlm/transform/bias': (P(None), P('data')),
  'mlm/transform/kernel': (P(None, None), P('data', None)),
  'nsp/bias': (P(None), P('data')),
  'nsp/kernel': (P(None, None), P('data', None)),
  'pooler/bias': (P(None), P('data')),
  'pooler/kernel': (P(None, None), P('data', None)),
}


def init(**changes):
  """Returns a function that makes the state before the first update."""
  c = training.small_config(**changes)
  return functools.partial(
    init_state,
    objective=training.make_objective(c),
    tx=optimizer.make(c.optimizer),
  )


def shapes(**changes):
  return jax.eval_shape(init(**changes), jax.random.key(0))


def test_the_place_of_every_parameter_and_moment():
  mesh = device_mesh.make_mesh(2)
  layout = partition.state_shardings(mesh, shapes())
  adam = layout.opt_state[1]
  found = {
    name: (partition.compute_spec(mesh, name, x.shape), s.spec)
    for (name, x), s in zip(
      param_names.flatten(shapes().params).items(),
      jax.tree.leaves(layout.params),
      strict=True,
    )
  }
  assert found == SPECS
  assert adam.nu == adam.mu == layout.params
  assert adam.count.spec == layout.step.spec == P()


def test_every_array_of_a_pre_norm_model_has_a_place():
  found = shapes(model__norm='pre').params['encoder']
  assert 'final_norm' in found
  partition.state_shardings(device_mesh.make_mesh(2), shapes(model__norm='pre'))


@pytest.mark.parametrize(
  'name', ['mlp_in/kernel', 'encoder/layer_0/mlp/kernel']
)
def test_an_unknown_name_raises(name):
  with pytest.raises(ValueError, match=f"no rule places '{name}'"):
    partition.compute_spec(device_mesh.make_mesh(), name, (8, 12))


def test_an_unknown_array_of_the_optimizer_raises():
  state = shapes().replace(opt_state={'trace': jax.ShapeDtypeStruct((), 'f4')})
  with pytest.raises(ValueError, match="no rule places 'opt_state/trace'"):
    partition.state_shardings(device_mesh.make_mesh(), state)


def test_heads_that_model_does_not_divide_are_named():
  name = 'encoder/layer_0/attention/qkv/kernel'
  with pytest.raises(errors.UserError, match=f'{name}.*does not divide 3'):
    partition.compute_spec(device_mesh.make_mesh(2), name, (6, 3, 3, 2))


def values_held(tree, layout):
  """Returns how many values of a tree lie on each device."""
  sizes = jax.tree.map(
    lambda x, s: np.prod(s.shard_shape(x.shape)), tree, layout
  )
  return sum(jax.tree.leaves(sizes))


def test_small_arrays_are_whole_on_every_device(monkeypatch):
  # Which is the default; conftest.py has the small models of other tests sharded.
  monkeypatch.setattr(partition, 'LEAST_SHARDED', 1 << 16)
  c = config.pretraining('large')
  c.model.num_layers = 2
  module = pretrain.make_module(c)
  make = functools.partial(parameters.init, module)
  params = param_names.flatten(jax.eval_shape(make, jax.random.key(0)))
  mesh = jax.sharding.AbstractMesh((16, 1), ('data', 'model'))
  sharded = [
    name
    for name, x in params.items()
    if 'data' in partition.stored_spec(mesh, name, x.shape)
  ]
  layers = [name for name in sharded if name.startswith('encoder/layer_')]
  assert len(layers) == 2 * 4  # their kernels
  assert sorted(set(sharded) - set(layers)) == [
    'embeddings/position/embedding',
    'embeddings/word/embedding',
    'mlm/transform/kernel',
    'pooler/kernel',
  ]
  layer = [x for name, x in params.items() if 'layer_1' in name]
  small = sum(x.size for x in layer if x.size < 1 << 16)
  assert 24 * small * 12 < 4.5e6  # bytes of LARGE, with both moments


def test_a_base_model_in_shares(data=8, model=2):
  c = config.pretraining('base')
  module = pretrain.make_module(c)
  make = functools.partial(parameters.init, module)
  params = jax.eval_shape(make, jax.random.key(0))
  mesh = jax.sharding.AbstractMesh((data, model), ('data', 'model'))
  specs = partition.stored_shardings(mesh, params)
  layout = jax.tree.map(lambda s: NamedSharding(mesh, s), specs)
  total = 110_106_428 + (30720 - 30522) * (768 + 1)
  assert sum(x.size for x in jax.tree.leaves(params)) == total
  least = total / (data * model)
  # What `model` leaves whole: positions, dense heads, norms and biases, 1.7M.
  whole = 1.7e6 * (1 - 1 / model) / data + 30720
  assert least <= values_held(params, layout) <= least + whole


@dataclasses.dataclass(frozen=True)
class Device:
  """A stand-in for a device."""

  id: int


def test_a_checkpoint_of_large_has_ten_thousand_chunks_at_most(monkeypatch):
  monkeypatch.setattr(partition, 'LEAST_SHARDED', 1 << 16)
  c = config.pretraining('large')
  c.model.num_layers = 2  # of 24
  mesh = device_mesh.make_mesh()
  _, shapes, _ = programs.plan_initial_state(
    c.optimizer, pretrain.make_objective(c), mesh
  )
  for count in (96, 4096):
    devices = np.array([Device(k) for k in range(count)])
    many = Mesh(devices[:, None], ('data', 'model'))
    writers = device_mesh.group_writers(many)
    assert list(writers.devices.flat) == list(devices)
    layout = jax.tree.leaves(partition.state_shardings(writers, shapes))
    chunks = sum(
      math.prod(writers.shape[axis] for axis in x.spec if axis) for x in layout
    )
    assert chunks == 416 + 2 * 408
  assert device_mesh.group_writers(mesh) is None
