"""Kills a run again and again, and compares its end with an unkilled run's.

  python benchmarks/kill.py --kills=25

A small model with dropout, accumulation and two phases (128, then 512 tokens).
Kills fall at random moments: while a save is under way, between steps, around
the switch of the phases, while the program starts and compiles. Prints where
each one fell and the verdict; exit code 1 unless fingerprint and exported
weights are equal. 25 kills take about ten minutes on two cores.
"""

import argparse
import collections
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from bert_jax import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEPS = (60, 30)
EVERY = 3  # steps between checkpoints
ARGUMENTS = [
  '--config=' + os.path.join(ROOT, 'configs/tiny.py:smoke'),
  '--config.phases.seq_length=128,512',
  f'--config.phases.steps={STEPS[0]},{STEPS[1]}',
  '--config.phases.batch_size=8,8',
  '--config.phases.accumulate=2,2',
  '--config.phases.max_predictions=20,76',
  f'--config.checkpoint.every={EVERY}',
  '--config.eval.every=20',
  '--config.log.every=1',
]


def start(workdir, *more):
  """Starts a run; its output goes to a file beside the working directory."""
  env = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': ROOT}
  command = [sys.executable, '-m', 'bert_jax.main', f'--workdir={workdir}']
  with open(workdir + '.out', 'a') as out:
    return subprocess.Popen(
      [*command, *ARGUMENTS, *more], env=env, stdout=out, stderr=out
    )


def finish(workdir, *more):
  """Runs to the end; returns (fingerprint, SHA-256 of the exported weights)."""
  if start(workdir, *more).wait():
    with open(workdir + '.out') as out:
      sys.exit(f'the run failed:\n{out.read()[-3000:]}')
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  marks = [r['fingerprint'] for r in rows if r['kind'] == 'checkpoint']
  path = os.path.join(workdir, 'export', 'model.safetensors')
  with open(path, 'rb') as file:
    return marks[-1], hashlib.sha256(file.read()).hexdigest()


def reached(workdir):
  """Returns the last step in the log."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return max((r['step'] for r in rows if r['kind'] == 'train'), default=0)


def save_under_way(workdir):
  """Returns whether a checkpoint is half written."""
  try:
    names = os.listdir(os.path.join(workdir, 'checkpoints'))
  except FileNotFoundError:
    return False
  return any('orbax-checkpoint-tmp' in name for name in names)


def wait_for(process, workdir, kind, target, rng):
  """Returns when it is time to kill, False if the run ended before."""
  if kind == 'starting':
    time.sleep(rng.uniform(0.3, 7))
    return process.poll() is None
  while process.poll() is None:
    if reached(workdir) >= target:
      if kind == 'training':
        time.sleep(rng.uniform(0, 0.2))
        return process.poll() is None
      if save_under_way(workdir):
        return True
    time.sleep(0.001)
  return False


def kill(workdir, more, signum, kind, target, rng):
  """Starts the run and kills it; returns where it was, None if it ended."""
  process = start(workdir, *more)
  if not wait_for(process, workdir, kind, target, rng):
    return None
  process.send_signal(signum)
  code = process.wait()
  if signum == signal.SIGTERM and code != 143:
    # A signal before the program's own handler is in place ends it at once.
    if not (kind == 'starting' and code == -signum):
      sys.exit(f'exit code {code} after SIGTERM while {kind}, expected 143')
  torn = ', half a checkpoint left' if save_under_way(workdir) else ''
  return f'{kind}, step {reached(workdir)}{torn}'


def plan(kills, rng):
  """Returns (kind, step) of each kill, in the order of the steps."""
  total = sum(STEPS)
  targets = [STEPS[0] - 1, STEPS[0], STEPS[0] + 1][: max(1, kills // 5)]
  targets += [rng.randrange(total - EVERY) for _ in range(kills - len(targets))]
  kinds = ['saving', 'training', 'saving', 'training', 'starting']
  return [(kinds[i % 5], t) for i, t in enumerate(sorted(targets))]


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--kills', type=int, default=25)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--signal', choices=['KILL', 'TERM'], default='KILL')
  options = parser.parse_args()
  rng = random.Random(options.seed)
  signum = signal.Signals['SIG' + options.signal]
  begin = time.monotonic()
  found = collections.Counter()
  with tempfile.TemporaryDirectory() as scratch:
    whole = finish(os.path.join(scratch, 'whole'))
    print(f'uninterrupted: fingerprint {whole[0]}', flush=True)
    workdir = os.path.join(scratch, 'killed')
    more = ['--config.data.dir=' + os.path.join(scratch, 'whole', 'data')]
    for n, (kind, target) in enumerate(plan(options.kills, rng)):
      where = kill(workdir, more, signum, kind, target, rng)
      print(f'{n + 1:3d} {options.signal} {where or "not killed: it ended"}')
      sys.stdout.flush()
      found[kind if where else 'ended'] += 1
      found['torn'] += 'half a checkpoint' in (where or '')
    killed = finish(workdir, *more)
  print(f'killed: fingerprint {killed[0]}')
  print(f'{dict(found)} in {time.monotonic() - begin:.0f} s')
  same = whole == killed and not found['ended']
  print(
    f'verdict: {options.kills - found["ended"]} kills, fingerprints and '
    f'exported weights {"equal: ok" if whole == killed else "DIFFER: FAILED"}'
  )
  return 0 if same else 1


if __name__ == '__main__':
  sys.exit(main())
