"""A process of a run that fails or hangs at a step; started by hosts.py.

Trains as bert_jax.main does with its flags. The variable FAILS of the environment
is 'KIND STEP SECONDS': KIND, what happens at a step, is raises, hangs or nothing,
and a hang counts after so many seconds instead of 600.
"""

import dataclasses
import functools
import os
import runpy
import time

from bert_jax.runtime import hang
from bert_jax.trainer import fit


def fail_at(kind, at, train_batch, phase, step, rows):
  """Makes a batch; at the step `at` raises an error, or hangs."""
  if step == at and kind == 'raises':
    raise OSError('no answer from the disk')
  if step == at and kind == 'hangs':
    time.sleep(1000)
  return train_batch(phase, step, rows)


def main():
  """Trains, and fails."""
  kind, at, seconds = os.environ['FAILS'].split()
  hang._LEAST_SECONDS = int(seconds)
  fit_whole = fit.fit

  def fit_failing(config, task, *args):
    failing = functools.partial(fail_at, kind, int(at), task.train_batch)
    task = dataclasses.replace(task, train_batch=failing)
    return fit_whole(config, task, *args)

  fit.fit = fit_failing
  runpy.run_module('bert_jax.main', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
  main()
