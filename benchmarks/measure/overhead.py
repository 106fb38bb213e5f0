"""Measures the overhead of the training loop beside the updates.

  python benchmarks/measure/overhead.py

First, `configs/tiny.py` for 300 updates on this machine's CPU: waiting for
batches must take less than 1 % of the time.

Then, updates of 50 ms: gaps between them must be less than 2 % of them (1 ms).
A CPU that computes the updates would share its cores with the loop, which no
accelerator does, so `fit.fit` drives a simulated device: it takes updates in
order, each lasts exactly 50 ms, and its metrics can be read when it is over.
Everything else is real: the batches and their copies, the metrics, the log, and
the dispatch of a program that takes and returns as many arrays as BERT-Base
has, 12 layers with their moments. A gap is the time that the device is idle
before an update is dispatched. The host work of the loop is printed, too; it is
hidden as long as it is shorter than an update.

Nothing may be compiled after the first update of a phase. Takes about three
minutes on two cores; the exit code is 1 if a limit is exceeded.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

from bert_jax import config, config_check
from bert_jax.pretraining import pretrain
from bert_jax.train import fit
from bert_jax.train import step as step_lib
from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
UPDATE = 0.05  # seconds
MOST_GAP, MOST_WAIT = 0.02, 0.01  # shares
TINY_STEPS, EVERY = 300, 50
# The phase of the tiny config, whose data is used.
PHASE = {
  'seq_length': 64,
  'steps': 200,
  'batch_size': 64,
  'accumulate': 1,
  'max_predictions': 10,
}
RARELY = 'eval.every=0,checkpoint.every=100000,warmup_steps=10'


def read_log(workdir):
  """Returns (train rows with their milliseconds per update, compilations)."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  compiled = sum(r['programs'] for r in rows if r['kind'] == 'compiled')
  return [r for r in rows if r['kind'] == 'train'], compiled


def share(rows, name):
  """Returns a share of the time of all rows; all have as many sequences."""
  seconds = np.array([1 / r['sequences_per_second'] for r in rows])
  return float(np.sum([r[name] for r in rows] * seconds) / np.sum(seconds))


def check_tiny(workdir):
  """Trains with the tiny config; returns whether the data is fast enough."""
  arguments = f'configs/tiny.py:steps={TINY_STEPS},log.every={EVERY},{RARELY}'
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'bert_jax.main'),
      *(f'--config={arguments}', f'--workdir={workdir}'),
    ],
    cwd=ROOT,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  if done.returncode:
    sys.exit(f'exit code {done.returncode}:\n{done.stdout[-3000:]}')
  rows, compiled = read_log(workdir)
  wait = share(rows, 'data_wait')
  rate = [r['sequences_per_second'] for r in rows]
  print(
    f'tiny run: {TINY_STEPS} updates, '
    f'{1e3 * PHASE["batch_size"] / np.median(rate):.1f} ms each, '
    f'data wait {wait:.2%} (bar {MOST_WAIT:.0%}), {compiled} compilation(s) '
    'after the first update',
    flush=True,
  )
  return wait < MOST_WAIT and not compiled


class Later:
  """A number that can be read once the device has computed it."""

  def __init__(self, value, ready):
    self._value, self._ready = value, ready

  def __array__(self, dtype=None, copy=None):
    del copy
    time.sleep(max(0.0, self._ready - time.monotonic()))
    return np.asarray(self._value, dtype)


class Device:
  """Stands for the jitted update: real dispatch, simulated updates.

  Attributes:
    gaps: seconds that the device was idle before each update but the first.
  """

  def __init__(self):
    self.gaps, self._free = [], None

  def lower(self, *args):
    # Multiplied by one, so that jax does not forward the inputs.
    def touch(state, batch, key):
      del batch, key
      state = jax.tree.map(lambda x: x * 1, state)
      return state.replace(step=state.step + 1)

    jitted = jax.jit(touch, donate_argnums=0, keep_unused=True)
    self._dispatch = jitted.lower(*args).compile()
    self.arrays = len(jax.tree.leaves(args[0]))
    return self

  def compile(self):
    return self._update

  def _update(self, state, batch, key):
    state = self._dispatch(state, batch, key)
    now = time.monotonic()
    if self._free is not None:
      self.gaps.append(max(0.0, now - self._free))
    self._free = max(now, self._free or now) + UPDATE
    numbers = {'grad_norm': 1.0, 'learning_rate': 1e-4, 'finite': True}
    sums = {
      f'{objective}_{kind}': (1.0, 1.0)
      for objective in ('mlm', 'nsp')
      for kind in ('loss', 'accuracy')
    }
    return state, jax.tree.map(
      lambda x: Later(x, self._free), {'sums': sums, **numbers}
    )


def check_gap(data, workdir):
  """Trains on the simulated device; returns whether it is kept busy."""
  c = config.pretraining('tiny')
  for name, value in PHASE.items():
    c.phases[name] = (value,)
  config.apply_arguments(
    c,
    'num_layers=12,hidden_size=64,mlp_size=128,vocab_size=8000,'
    f'log.every={EVERY},{RARELY}',
  )
  config_check.check(c)
  device, original = Device(), step_lib.jit_train
  step_lib.jit_train = lambda *args: device
  try:
    fit.fit(c, pretrain.make_task(c, data), workdir)
  finally:
    step_lib.jit_train = original
  rows, compiled = read_log(workdir)
  gaps = 1e3 * np.array(device.gaps)
  mean = gaps.mean() / (1e3 * UPDATE)
  each = 1e3 * np.median(
    [
      r['host_work'] * PHASE['batch_size'] / r['sequences_per_second']
      for r in rows
    ]
  )
  print(
    f'updates of {1e3 * UPDATE:.0f} ms with a state of {device.arrays} arrays: '
    f'gaps of {gaps.mean():.3f} ms on average, {np.percentile(gaps, 99):.3f} '
    f'ms in the 99th percentile: overhead {mean:.2%} (bar {MOST_GAP:.0%}); '
    f'the loop works {each:.2f} ms per update meanwhile; data wait '
    f'{share(rows, "data_wait"):.2%}; {compiled} compilation(s) after the '
    'first update',
    flush=True,
  )
  return mean < MOST_GAP and not compiled


def main():
  """Runs the measurements."""
  argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
  jax.config.update('jax_platforms', 'cpu')
  with tempfile.TemporaryDirectory() as scratch:
    run = os.path.join(scratch, 'tiny')
    good = check_tiny(run)
    good = check_gap(os.path.join(run, 'data'), f'{scratch}/gap') and good
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
