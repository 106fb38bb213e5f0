"""Tests of how gradients are added up over the devices."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

from bert_jax.parallel import collectives as collectives_of_rings
from bert_jax.parallel import device_mesh, partition
from bert_jax.trainer import gradient, task
from tests import training

PARTS = 2


def gradient_of_four(clip_unit, model=1, fields=None, **changed):
  """Returns (jitted function, arguments) of a batch, by default in `PARTS`.

  Args:
    fields: of the config, without dropout by default.
    changed: fields of the update.
  """
  plain = {'model__dropout': 0.0, 'model__attention_dropout': 0.0}
  c = training.small_config(**plain | (fields or {}))
  c.optimizer.clip_unit = clip_unit
  made, mesh = training.make_objective(c), device_mesh.make_mesh(model)
  (phase,) = task.list_phases(c)
  how = dataclasses.replace(
    gradient.make_update(c.optimizer, made, phase, mesh),
    **{'parts': PARTS, **changed},
  )
  function = functools.partial(gradient.compute, update=how)
  key = jax.device_put(jax.random.key(0), device_mesh.replicate(mesh))
  params = jax.device_put(made.init(key), device_mesh.replicate(mesh))
  batch = device_mesh.put_batch(mesh, training.make_batch(0))
  return jax.jit(function), (params, batch, key)


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
  function, arguments = gradient_of_four('batch')
  _, whole = function(*arguments)
  request.getfixturevalue('rings')
  function, arguments = gradient_of_four('batch')
  program = function.lower(*arguments).compile()
  assert 'collective-permute' in program.as_text()
  check_same(whole, program(*arguments)[1])


def test_sums_beside_the_backward_pass_are_the_same(rings):
  fields = {'model__num_layers': 2, 'model__dropout': 0.1}
  fields['compute__remat'] = 'layer'
  programs = []
  for early in (False, True):
    function, arguments = gradient_of_four(
      'batch', fields=fields, parts=1, early=early
    )
    programs.append(function.lower(*arguments).compile())
  late, early = (program(*arguments)[1] for program in programs)
  check_same(late, early)
  late, early = (x.as_text().count('collective-permute(') for x in programs)
  assert late == early > 0


@pytest.mark.parametrize(
  'fields, early',
  [
    ({}, True),
    ({'phases__accumulate': (2,)}, False),
  ],
)
def test_kernels_of_layers_are_summed_early_around_rings(
  request, fields, early
):
  c = training.small_config(**fields)
  made, mesh = training.make_objective(c), device_mesh.make_mesh()
  params = made.init(jax.random.key(0))
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
  fields = {'model__dtype': 'bfloat16'}
  function, arguments = gradient_of_four('batch', fields=fields, parts=1)
  text = function.lower(*arguments).as_text()
  rows, size = arguments[0]['embeddings']['word']['embedding'].shape
  gathered = re.findall(r'stablehlo.all_gather.*-> tensor<(\S+)>', text)
  assert f'{rows}x{size}xbf16' in gathered
  assert f'{rows}x{size}xf32' not in gathered
  # The types of a scatter are behind its region.
  added = re.findall(r'stablehlo.scatter.*?\}\) : \(tensor<(\S+)>', text, re.S)
  assert added.count(f'{rows}x{size}xf32') == 2  # of input and of masked words
  assert not any('bf16' in kind for kind in added)
