"""Trains with bert_jax, as bert_jax.main does; see ../step.py."""

import functools
import itertools
import sys

import jax
import jaxlib
import numpy as np
import pipe

from bert_jax.config import unflatten
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import pretrain
from bert_jax.runtime import machine
from bert_jax.trainer import programs, task, tuning
from bert_jax.trainer.step import jit_train, run_key


def trainer(c, batches):
  """Returns (steps) -> loss of the last step.

  Args:
    c: the config, of one phase.
    batches: global batches, used cyclically.
  """
  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(c.mesh.model, jax.devices()[:1])
  learnt = tuning.tune(pretrain.make_objective(c), mesh, phase.seq_length)
  start = {p.name: p for p in programs.list_start(c, learnt, mesh)}
  state = start[programs.INITIALISE].jitted(jax.random.key(c.seed))
  key = start[programs.PLACE_KEY].jitted(run_key(c.seed, c.rng))
  rates = start[programs.RATES].jitted(0)
  put = functools.partial(device_mesh.put_batch, mesh)
  update = jit_train(c.optimizer, learnt, phase, mesh)
  update = update.lower(state, put(batches[0]), key, rates).compile()
  source = itertools.cycle(batches)

  def train(steps):
    nonlocal state
    for _ in range(steps):
      state, metrics = update(state, put(next(source)), key, rates)
    sums = jax.device_get(metrics['sums'])
    return sum(float(a / n) for k, (a, n) in sums.items() if 'loss' in k)

  return train


def find_peak() -> dict:
  """Returns the most bytes that were in use; None if jax does not know."""
  stats = jax.devices()[0].memory_stats() or {}
  return {'peak_bytes': stats.get('peak_bytes_in_use')}


def main():
  machine.keep_freed_memory()  # as bert_jax.main does
  settings = pipe.settings()
  c = unflatten(settings['config'])
  for argument in sys.argv[2:]:  # those of XLA are in the environment
    name, _, value = argument.partition('=')
    if name == 'attention':
      c.compute.attention = value
  with np.load(settings['batches']) as file:
    shapes = pretrain.make_objective(c).batch_shapes
    names = shapes(task.list_phases(c)[0], 1)
    stacked = {name: file[name] for name in names}
  count = len(stacked['input_ids'])
  batches = [{k: x[i] for k, x in stacked.items()} for i in range(count)]
  facts = {
    'versions': f'jax {jax.__version__}, jaxlib {jaxlib.__version__}',
    'device': jax.devices()[0].device_kind,
  }
  pipe.serve(facts, trainer(c, batches), more=find_peak)


if __name__ == '__main__':
  main()
