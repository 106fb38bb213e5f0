"""Trains on a GPU, on the CPU, and on both in turns, and compares the runs.

  python benchmarks/proofs/gpu_runs.py

The run is that of kill.py: a small model with dropout by threefry, in float32,
with micro-batches and two lengths. On the GPU it must see the same batches and
the same dropout as on the CPU: its losses then differ by rounding only. The
third run begins on the CPU, continues on the GPU from the CPU's checkpoint, and
ends on the CPU from the GPU's: each time the fingerprint that was saved must be
the one that is restored. The exit code is 1 if one of these fails.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile

import kill

FIRST = 10  # steps whose losses must agree
CLOSE = 1e-4  # relative; other dropout changes a loss by more
STOPS = (20, 45)  # steps at which the third run moves
SAVED = re.compile(r'checkpoint at step ([\d,]+), fingerprint=(\w+)')
RESTORED = re.compile(r'resumed at step ([\d,]+), fingerprint=(\w+)')


def say(good, text):
  print(f'{"PASS" if good else "FAIL"}: {text}', flush=True)
  return good


def run(scratch, name, platform, data):
  """Trains in the folder `name` on a platform; as `kill.finish`."""
  os.environ['JAX_PLATFORMS'] = platform
  workdir = os.path.join(scratch, name)
  return kill.finish(workdir, workdir + '.out', *data)


def check_losses(gpu, cpu):
  """Compares the losses of two runs; returns whether they are close."""
  pairs = [
    (step, abs(a - b) / b)
    for (kind, step, a), (_, _, b) in zip(
      gpu['losses'], cpu['losses'], strict=True
    )
    if kind == 'train'
  ]
  first = max(error for step, error in pairs if step <= FIRST)
  whole = max(error for _, error in pairs)
  return say(
    first <= CLOSE,
    f'batches and dropout are those of the CPU: losses of {FIRST} steps differ '
    f'by {first:.1e} (at most {CLOSE:.0e}), of all {len(pairs)} by {whole:.1e}',
  )


def move(scratch, platforms, data):
  """Trains on one platform after the other; returns whether states survived."""
  workdir, rng, good = os.path.join(scratch, 'moved'), random.Random(0), True
  before = None
  for i, (platform, target) in enumerate(
    zip(platforms, (*STOPS, None), strict=True)
  ):
    os.environ['JAX_PLATFORMS'] = platform
    output = f'{workdir}.{i}.out'
    if target is None:
      kill.finish(workdir, output, *data)
    elif not kill.kill(
      *(workdir, output, data, signal.SIGTERM, 'training', target, rng)
    ):
      return say(False, f'the run ended before step {target}')
    text = kill.said(output)
    if before:
      restored = RESTORED.search(text)
      good &= say(
        restored is not None and restored.groups() == before[1],
        f'{platform} restored from {before[0]}: step and fingerprint '
        f'{restored and restored.groups()} of {before[1]}',
      )
    before = platform, SAVED.findall(text)[-1]
  return good


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--platform', default='cuda', help='cpu: without a GPU')
  there = parser.parse_args().platform
  with tempfile.TemporaryDirectory() as scratch:
    cpu = run(scratch, 'cpu', 'cpu', [])
    data = ['--config.data.dir=' + os.path.join(scratch, 'cpu', 'data')]
    gpu = run(scratch, 'gpu', there, data)
    good = check_losses(gpu, cpu)
    good &= move(scratch, ('cpu', there, 'cpu'), data)
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
