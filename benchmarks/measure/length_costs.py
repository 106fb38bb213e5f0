"""Measures what a further length of batches costs and what an update computes.

  python benchmarks/measure/length_costs.py tiny base

Seconds of a core, all threads added up, so that other programs hardly matter: to
compile the training step and the evaluation of configs/glue.py:rte at length 64,
and FLOPs per second in an update. By these, `finetuning/buckets.py` decides
whether batches by length pay in a run on a CPU.
"""

import argparse
import time

import jax
import numpy as np

_UPDATES = 3


def measure(size: str):
  """Prints the figures of a size of `config.SIZES`."""
  from bert_jax import config as config_lib
  from bert_jax import tasks
  from bert_jax.parallel import device_mesh
  from bert_jax.train import programs, tuning
  from bert_jax.train import task as task_lib

  c = config_lib.finetuning(size)
  c.finetuning.outputs, c.phases.seq_length = 2, (64,)
  c = tuning.resolve(c, jax.devices()[0], 64)
  objective, mesh = tasks.get(c).make_objective(c), device_mesh.make_mesh()
  [phase] = task_lib.list_phases(c)
  start, compiled = time.process_time(), {}
  listed = programs.list_phase(c, objective, mesh, phase)
  for program in listed:
    compiled[program.name] = program.lower().compile()
  seconds = time.process_time() - start
  print(f'{size}: {seconds:.1f} s to compile a length')
  [arguments] = [x.arguments for x in listed if x.name == programs.TRAIN]
  state, batch = jax.tree.map(_make, arguments[:2])
  key = jax.device_put(jax.random.key(0), device_mesh.replicate(mesh))
  for i in range(_UPDATES + 1):
    if i == 1:  # after the first, which also touches memory
      start = time.process_time()
    state, _ = compiled[programs.TRAIN](state, batch, key)
    jax.block_until_ready(state)
  seconds = (time.process_time() - start) / _UPDATES
  rate = objective.flops(phase) / seconds / 1e9
  print(f'{size}: {seconds:.2f} s per update, {rate:.0f} GFLOP/s')


def _make(x):
  return jax.device_put(np.zeros(x.shape, x.dtype), x.sharding)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('sizes', nargs='+')
  jax.config.update('jax_enable_compilation_cache', False)
  for size in parser.parse_args().sizes:
    measure(size)


if __name__ == '__main__':
  main()
