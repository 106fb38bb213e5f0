"""Tests of how gradients are added up over the devices."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

from bert_jax.parallel import collectives as collectives_of_rings
from bert_jax.parallel import device_mesh
from bert_jax.train import gradient, task
from tests import training

PARTS = 2


def gradient_of_four(clip_unit, model=1):
  """Returns (jitted function, arguments): four rows, two at a time."""
  c = training.small_config(model__dropout=0.0, model__attention_dropout=0.0)
  c.optimizer.clip_unit = clip_unit
  made, mesh = training.make_objective(c), device_mesh.make_mesh(model)
  (phase,) = task.list_phases(c)
  how = dataclasses.replace(
    gradient.make_update(c, made, phase, mesh), parts=PARTS
  )
  function = functools.partial(gradient.compute, update=how)
  key = jax.device_put(jax.random.key(0), device_mesh.replicate(mesh))
  params = jax.device_put(made.init(key), device_mesh.replicate(mesh))
  batch = device_mesh.put_batch(mesh, training.make_batch(0))
  return jax.jit(function), (params, batch, key)


def compiled(*case, **how):
  """Returns the HLO of `gradient_of_four`."""
  function, arguments = gradient_of_four(*case, **how)
  return function.lower(*arguments).compile().as_text()


def collectives(text):
  """Returns those of an HLO text, (inside of loops, outside of them).

  Each is (operation, shape).
  """
  parts = re.findall(
    r'^(?:ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}', text, re.S | re.M
  )
  bodies = dict(parts)
  inside, todo = set(), re.findall(r'body=%?([\w.-]+)', text)
  assert todo, 'no loop'
  while todo:
    name = todo.pop()
    if name not in inside:
      inside.add(name)
      calls = re.findall(
        r'(?:body|condition|calls|to_apply)=%?([\w.-]+)', bodies[name]
      )
      todo += [call for call in calls if call in bodies]
  found = ([], [])
  for name, body in parts:
    for shape, operation in re.findall(
      r'= (.*?) (all-reduce|reduce-scatter|all-gather|all-to-all)\(', body
    ):
      found[name not in inside].append((operation, shape))
  return found


@pytest.mark.slow
@pytest.mark.parametrize('clip_unit', ['batch', 'micro_batch'])
def test_accumulation_adds_over_devices_once_unless_parts_are_clipped(
  clip_unit,
):
  inside, outside = collectives(compiled(clip_unit))
  if clip_unit == 'batch':
    assert inside == []
    inside = outside
  assert 'reduce-scatter' in {operation for operation, _ in inside}


def test_rings_of_devices_add_up_the_same(monkeypatch):
  function, arguments = gradient_of_four('batch')
  _, whole = function(*arguments)
  monkeypatch.setattr(device_mesh, 'count_slices', lambda mesh: 1)
  monkeypatch.setattr(device_mesh, 'find_row', lambda mesh: 2)
  monkeypatch.setattr(collectives_of_rings, '_LARGE', 1)
  function, arguments = gradient_of_four('batch')
  program = function.lower(*arguments).compile()
  assert 'collective-permute' in program.as_text()
  _, found = program(*arguments)
  for one, other in zip(*map(jax.tree.leaves, (whole, found)), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
