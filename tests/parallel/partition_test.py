"""Tests of which array lies where."""

import functools

import jax
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax import errors, param_names
from bert_jax.parallel import device_mesh, partition
from bert_jax.trainer import optimizer
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


def test_an_unknown_name_or_array_of_the_optimizer_raises():
  mesh = device_mesh.make_mesh()
  for name in ('mlp_in/kernel', 'encoder/layer_0/mlp/kernel'):
    with pytest.raises(ValueError, match=f"no rule places '{name}'"):
      partition.compute_spec(mesh, name, (8, 12))
  state = shapes().replace(opt_state={'trace': jax.ShapeDtypeStruct((), 'f4')})
  with pytest.raises(ValueError, match="no rule places 'opt_state/trace'"):
    partition.state_shardings(mesh, state)


def test_heads_that_model_does_not_divide_are_named():
  name = 'encoder/layer_0/attention/qkv/kernel'
  with pytest.raises(errors.UserError, match=f'{name}.*does not divide 3'):
    partition.compute_spec(device_mesh.make_mesh(2), name, (6, 3, 3, 2))


def test_small_arrays_are_whole_on_every_device(monkeypatch):
  # Which is the default; conftest.py has the small models of other tests sharded.
  monkeypatch.setattr(partition, 'LEAST_SHARDED', 1 << 16)
  mesh = jax.sharding.AbstractMesh((16, 1), ('data', 'model'))
  specs = {  # of LARGE
    'embeddings/position/embedding': ((512, 1024), P(None, 'data')),
    'encoder/layer_0/mlp_in/kernel': ((1024, 4096), P(None, 'data')),
    'encoder/layer_0/mlp_in/bias': ((4096,), P(None)),
    'encoder/layer_0/attention/qkv/bias': ((3, 16, 64), P(None, None, None)),
    'encoder/layer_0/mlp_norm/scale': ((1024,), P(None)),
    'nsp/kernel': ((1024, 2), P(None, None)),
    'encoder/final_norm/scale': ((1024,), P(None)),  # of norm=pre
  }
  for name, (shape, spec) in specs.items():
    assert partition.stored_spec(mesh, name, shape) == spec, name
