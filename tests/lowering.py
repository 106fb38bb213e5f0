"""Lowers the programs of configs for accelerators that are not here."""

import functools
import importlib
import types
import warnings

import jax
from ml_collections import config_dict

from bert_jax import tasks
from bert_jax.config import apply_arguments
from bert_jax.parallel import device_mesh
from bert_jax.preflight import gpu_compiler
from bert_jax.trainer import programs, task, tuning


def make_config(name, arguments=''):
  """Returns a shipped config with one layer; more would be more of the same."""
  name, _, own = name.partition(':')
  c = importlib.import_module(f'configs.{name}').get_config(own)
  c.model.num_layers = 1
  return apply_arguments(c, arguments)


def short(arguments=''):
  """Returns configs/tiny.py with one phase of length 128, and all words."""
  c = make_config('tiny')
  c.objective.sampled_words = 0
  c.update_from_flattened_dict(
    {f'phases.{field}': values[:1] for field, values in c.phases.items()}
  )
  c.phases.seq_length = (128,)
  return apply_arguments(c, arguments)


def lower(c, device, count):
  """Lowers the programs of each phase for absent accelerators.

  Args:
    c: the experiment.
    device: one of them, with `platform` and `device_kind`, from which
      `tuning.resolve` chooses.
    count: how many.

  Returns:
    {(name, length): text}.
  """
  mesh = device_mesh.make_mesh(c.mesh.model, jax.devices()[:count])
  slices = device_mesh.count_slices(mesh)
  found = {}
  made = tasks.get(c).make_objective(c)
  for phase in task.split_by_length(made, task.list_phases(c)):
    where = device, c.mesh.model, phase.seq_length
    how = tuning.resolve(made.how, made.bert, *where)
    frozen = config_dict.FrozenConfigDict(c)
    found |= _lower_phase(frozen, how, phase, mesh, slices, device.platform)
  return found


@functools.cache
def _lower_phase(c, how, phase, mesh, slices, platform):
  """Lowers once what several chips compute alike."""
  del slices  # it distinguishes meshes that are otherwise the same
  made = tasks.get(c).make_objective(c).computed_as(how, phase)
  return {
    (program.name, program.length): _lower_program(program, platform)
    for program in programs.list_phase(c, made, mesh, phase)
  }


def lower_for_gpus(function, *arguments):
  """Returns the text of a function, lowered for one GPU."""
  program = types.SimpleNamespace(jitted=jax.jit(function), arguments=arguments)
  return _lower_program(program, 'gpu')


def _lower_program(program, platform):
  gpu_compiler.tell_pallas()
  traced = program.jitted.trace(*program.arguments)
  platform = {'gpu': 'cuda'}.get(platform, platform)
  with warnings.catch_warnings():
    # By jax 0.11 and newer; users are told when it is gone (`ops/triton_calls.py`).
    warnings.filterwarnings('ignore', 'The Pallas Triton backend is deprecated')
    return traced.lower(lowering_platforms=(platform,)).as_text()
