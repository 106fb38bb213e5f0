"""Tests of how gradients are added up over the devices."""

import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.parallel import collectives as collectives_of_rings
from bert_jax.parallel import device_mesh, partition
from bert_jax.trainer import gradient, task
from tests import training


def jit_gradient(update):
  return jax.jit(functools.partial(gradient.compute, update=update))


def gradient_of_four(**fields):
  """Returns (update, arguments) of a small model's batch on four devices."""
  c = training.small_config(**fields)
  made, mesh = training.make_objective(c), device_mesh.make_mesh()
  (phase,) = task.list_phases(c)
  key = jax.device_put(jax.random.key(0), device_mesh.replicate(mesh))
  params = jax.jit(made.init)(key)
  batch = device_mesh.put_batch(mesh, training.make_batch(0))
  update = gradient.make_update(c.optimizer, made, phase, mesh)
  return update, (params, batch, key)


@pytest.fixture
def rings(monkeypatch):
  """Arranges the devices in rings, as only TPUs are."""
  monkeypatch.setattr(device_mesh, 'count_slices', lambda mesh: 1)
  monkeypatch.setattr(device_mesh, 'find_row', lambda mesh: 2)
  monkeypatch.setattr(collectives_of_rings, '_LARGE', 1)


def check_same(whole, found):
  for one, other in zip(*map(jax.tree.leaves, (whole, found)), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_rings_of_devices_add_up_the_same(request):
  """Of a linear model, in two micro-batches."""

  def compute(params, batch, key):
    y = batch['x'] @ params['encoder']['layer_0']['mlp_in']['kernel']
    return {'loss': jnp.sum(y**2)}, {}

  linear = types.SimpleNamespace(
    bert=types.SimpleNamespace(dtype='float32'),
    losses=('loss',),
    counts=lambda batch: {'loss': 16.0},
    compute=compute,
  )
  mesh = device_mesh.make_mesh()
  random = np.random.default_rng(0)
  x, kernel = (random.normal(size=n).astype('f4') for n in ((16, 8), (8, 12)))
  update = gradient.Update(linear, mesh, optax.identity(), parts=2)
  params = {'encoder': {'layer_0': {'mlp_in': {'kernel': kernel}}}}
  params = jax.device_put(params, device_mesh.replicate(mesh))
  key = jax.device_put(jax.random.key(0), device_mesh.replicate(mesh))
  arguments = params, device_mesh.put_batch(mesh, {'x': x}), key
  _, whole = jit_gradient(update)(*arguments)
  check_same(whole, [x.T @ (x @ kernel) / 8])
  request.getfixturevalue('rings')
  program = jit_gradient(update).lower(*arguments).compile()
  assert 'collective-permute' in program.as_text()
  check_same(whole, program(*arguments)[1])


def test_sums_beside_the_backward_pass_are_the_same(request):
  plain = {'model__dropout': 0.0, 'model__attention_dropout': 0.0}
  update, arguments = gradient_of_four(
    model__num_layers=2, compute__remat='layer', **plain
  )
  assert update.early
  _, whole = jit_gradient(update)(*arguments)  # by other collectives
  request.getfixturevalue('rings')
  program = jit_gradient(update).lower(*arguments).compile()
  assert 'collective-permute(' in program.as_text()
  check_same(whole, program(*arguments)[1])


@pytest.mark.parametrize('parts, early', [(1, True), (2, False)])
def test_kernels_of_layers_are_summed_early_around_rings(request, parts, early):
  c = training.small_config(phases__accumulate=(parts,))
  made, mesh = training.make_objective(c), device_mesh.make_mesh()
  params = jax.eval_shape(made.init, jax.random.key(0))
  (phase,) = task.list_phases(c)

  def names():
    update = gradient.make_update(c.optimizer, made, phase, mesh)
    specs = partition.stored_shardings(mesh, params)
    return gradient._list_early(params, specs, update)

  assert names() == set()  # by other collectives
  request.getfixturevalue('rings')
  layer = 'encoder/layer_0/'
  assert (f'{layer}mlp_in/kernel' in names()) == early
  assert all(name.startswith(layer) for name in names())


def test_words_are_gathered_in_bfloat16_and_their_gradients_added_in_float32():
  """A frequent word has the gradients of thousands of rows."""
  update, arguments = gradient_of_four(model__dtype='bfloat16')
  text = jit_gradient(update).lower(*arguments).as_text()
  rows, size = arguments[0]['embeddings']['word']['embedding'].shape
  gathered = re.findall(r'stablehlo.all_gather.*-> tensor<(\S+)>', text)
  assert f'{rows}x{size}xbf16' in gathered
  assert f'{rows}x{size}xf32' not in gathered
  # The types of a scatter are behind its region.
  added = re.findall(r'stablehlo.scatter.*?\}\) : \(tensor<(\S+)>', text, re.S)
  assert added.count(f'{rows}x{size}xf32') == 2  # of input and of masked words
  assert not any('bf16' in kind for kind in added)
