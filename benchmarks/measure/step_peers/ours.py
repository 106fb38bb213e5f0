"""Trains with bert_jax, as bert_jax.main does; see ../step.py."""

import functools
import itertools
import pathlib
import sys
import time

import jax
import numpy as np
import pipe
import step_rows
from jax.experimental import serialize_executable

from bert_jax.config import unflatten
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import pretrain
from bert_jax.runtime import machine
from bert_jax.trainer import programs, task, tuning
from bert_jax.trainer.step import run_key


def list_step(c, devices) -> programs.Program:
  """Returns the training step, which is compiled for one of the devices."""
  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(c.mesh.model, devices[:1])
  learnt = tuning.tune(pretrain.make_objective(c), mesh, phase)
  return programs.list_phase(c, learnt, mesh, phase)[0]


def find_path(folder, c) -> pathlib.Path:
  """Returns where the step of a config is, if it was compiled elsewhere."""
  (length,), (rows,) = c.phases.seq_length, c.phases.batch_size
  shape = f'{c.model.hidden_size}x{c.model.num_layers}-{length}-{rows}'
  return pathlib.Path(folder, f'{shape}-{c.compute.attention}.exe')


def compile_step(c, folder):
  """Returns (the compiled step, how it was made)."""
  lowered, begin, why = list_step(c, jax.devices()).lower(), time.time(), ''
  path = find_path(folder, c)
  if folder and path.exists():
    try:
      compiled = serialize_executable.deserialize_and_load(
        *(path.read_bytes(), lowered.in_tree, lowered.out_tree),
        execution_devices=jax.devices()[:1],
      )
      return compiled, f'loaded in {time.time() - begin:.1f} s'
    except Exception as error:  # it is a trial
      why = f', not loaded: {str(error)[:200]}'
  compiled = lowered.compile()
  return compiled, f'compiled in {time.time() - begin:.1f} s{why}'


def trainer(c, batches, folder=''):
  """Returns (a function (steps) -> loss of the last, the step, how it was made).

  Args:
    c: the config, of one phase.
    batches: global batches, used cyclically.
    folder: of steps that were compiled elsewhere.
  """
  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(c.mesh.model, jax.devices()[:1])
  learnt = tuning.tune(pretrain.make_objective(c), mesh, phase)
  start = {p.name: p for p in programs.list_start(c, learnt, mesh)}
  state = start[programs.INITIALISE].jitted(jax.random.key(c.seed))
  key = start[programs.PLACE_KEY].jitted(run_key(c.seed, c.rng))
  rates = start[programs.RATES].jitted(0)
  put = functools.partial(device_mesh.put_batch, mesh)
  update, made = compile_step(c, folder)
  source = itertools.cycle(batches)

  def train(steps):
    nonlocal state
    for _ in range(steps):
      state, metrics = update(state, put(next(source)), key, rates)
    sums = jax.device_get(metrics['sums'])
    return sum(float(a / n) for k, (a, n) in sums.items() if 'loss' in k)

  return train, update, made


def find_peak() -> dict:
  """Returns the most bytes that were in use; None if jax does not know."""
  stats = jax.devices()[0].memory_stats() or {}
  return {'peak_bytes': stats.get('peak_bytes_in_use')}


def main():
  machine.keep_freed_memory()  # as bert_jax.main does
  settings = pipe.settings()
  c = unflatten(settings['config'])
  with np.load(settings['batches']) as file:
    shapes = pretrain.make_objective(c).batch_shapes
    names = shapes(task.list_phases(c)[0], 1)
    stacked = {name: file[name] for name in names}
  train, _, made = trainer(c, step_rows.split(stacked), sys.argv[2])
  facts = {
    'versions': f'jax {jax.__version__}, {made}',
    'device': jax.devices()[0].device_kind,
  }
  pipe.serve(facts, train, more=find_peak)


if __name__ == '__main__':
  main()
