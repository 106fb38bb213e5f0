"""One process of a run that hosts.py lets fail; started by it.

It trains in a folder of its own, on its own copy of the data, and shares no
file with the other processes. Checkpoints on disks need a shared one, so it
saves nothing.
"""

import argparse
import dataclasses
import functools
import os
import sys
import time

from bert_jax import main
from bert_jax.parallel import distributed
from bert_jax.runtime import cli, pulse
from bert_jax.train import fit
from bert_jax.workdir import checkpoint, claim
from configs import tiny


def parse_options():
  """Reads the flags, and hides them from absl."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  for name in ('folder', 'config', 'coordinator', 'breaks'):
    parser.add_argument(f'--{name}')
  for name in ('num_processes', 'process_id', 'at', 'hang_seconds'):
    parser.add_argument(f'--{name}', type=int)
  found = parser.parse_args()
  sys.argv[1:] = []
  return found


def fail_at(options, train_batch, phase, step, rows):
  """Makes a batch; at the step `at` raises an error, or hangs."""
  if step == options.at and options.breaks == 'raises':
    raise OSError('no answer from the disk')
  if step == options.at and options.breaks == 'hangs':
    time.sleep(1000)
  return train_batch(phase, step, rows)


def train(options):
  """Trains as `bert_jax.main` does, but for what this file says."""
  if options.hang_seconds:
    pulse._LEAST_SECONDS = options.hang_seconds
  claim.check_shared = lambda workdir: None
  checkpoint.Checkpoints.save = lambda *arguments: 'not saved'
  fit_whole = fit.fit

  def fit_failing(config, task, *args):
    failing = functools.partial(fail_at, options, task.train_batch)
    task = dataclasses.replace(task, train_batch=failing)
    return fit_whole(config, task, *args)

  fit.fit = fit_failing
  os.makedirs(os.path.join(options.folder, 'checkpoints'))
  # All hosts must have the same config, and each its own data.
  os.chdir(options.folder)
  c = tiny.get_config(options.config.partition(':')[2])
  c.data.dir = 'data'
  distributed.start(
    options.coordinator, options.num_processes, options.process_id
  )
  main.run(c, options.folder)


if __name__ == '__main__':
  given = parse_options()
  cli.run(lambda: train(given))
