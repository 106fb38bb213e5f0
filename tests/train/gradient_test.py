"""Tests of how gradients are added up over the devices."""

import dataclasses
import functools
import re

import jax
import pytest

from bert_jax.parallel import device_mesh
from bert_jax.train import gradient, task
from tests import training

PARTS = 2


def compiled(clip_unit, model=1):
  """Returns the HLO of the gradient of four rows, two at a time."""
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
  return jax.jit(function).lower(params, batch, key).compile().as_text()


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
