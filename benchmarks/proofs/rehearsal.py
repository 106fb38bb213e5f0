"""Rehearses a run on many TPUs on CPUs: every program, with the kernels.

  python benchmarks/proofs/rehearsal.py [--folder=DIR]

Trains through `bert_jax.main` on eight forced CPU devices, two phases of 128
and 512 tokens with evaluation and checkpoints, three times: with XLA's
attention; with the TPU kernels in Pallas' interpreter; and with the kernels
again, killed in the second phase and resumed. The losses of training and
evaluation must agree to 1 in 100,000, the last two runs bit for bit. Prints a
verdict; the exit code is 1 if it is not ok. Takes about five minutes on two
cores.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
ARGUMENTS = 'smoke,hidden_size=128,dtype=float32,rng=threefry'
DEVICES = 8
TOLERANCE = 1e-5  # of a loss
KILL_AFTER = 18  # steps: the checkpoint in the middle of the second phase


def train_here(attention: str, workdir: str, data: str):
  """Runs `main` in this process, with kernels although these are CPUs."""
  import types

  from bert_jax import main
  from bert_jax.train import compile_cache, tuning
  from configs import base

  problem = tuning._fused_problem

  def as_on_a_tpu(config, device, length):
    del device
    tpu = types.SimpleNamespace(platform='tpu', device_kind='TPU v4')
    return problem(config, tpu, length)

  tuning._fused_problem = as_on_a_tpu
  config = base.get_config(f'{ARGUMENTS},attention={attention}')
  config.data.dir = data
  compile_cache.use()
  main.run(config, workdir)


def start(attention: str, workdir: str, data: str = '') -> subprocess.Popen:
  """Starts a run in a process of its own."""
  flags = f'--xla_force_host_platform_device_count={DEVICES}'
  path = os.pathsep.join([ROOT, os.environ.get('PYTHONPATH', '')])
  return subprocess.Popen(
    [sys.executable, __file__, '--run', attention, workdir, data],
    env={
      **os.environ,
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': flags,
      'PYTHONPATH': path,
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def finish(process: subprocess.Popen, what: str):
  """Waits for a run; prints the end of its output if it failed."""
  begin = time.monotonic()
  said, _ = process.communicate()
  if process.returncode:
    sys.exit(f'{what} failed ({process.returncode}):\n{said[-3000:]}')
  print(f'{what}: {time.monotonic() - begin:.0f} s', flush=True)
  return said


def rows(workdir: str) -> list[dict]:
  """Returns the rows of a run's log."""
  path = os.path.join(workdir, 'metrics.jsonl')
  if not os.path.exists(path):
    return []
  with open(path) as file:
    return [json.loads(line) for line in file if line.endswith('\n')]


def kill_in_the_second_phase(process: subprocess.Popen, workdir: str):
  """Sends SIGKILL once a checkpoint of the second phase is logged."""
  while process.poll() is None:
    saved = [r['step'] for r in rows(workdir) if r['kind'] == 'checkpoint']
    if saved and max(saved) >= KILL_AFTER:
      process.send_signal(signal.SIGKILL)
      process.wait()
      return
    time.sleep(0.05)
  sys.exit(f'the run ended before step {KILL_AFTER}:\n{process.stdout.read()}')


def losses(workdir: str) -> dict:
  """Returns {(kind, step, name): loss} of training and evaluation."""
  return {
    (r['kind'], r['step'], name): r[name]
    for r in rows(workdir)
    if r['kind'] in ('train', 'eval')
    for name in r
    if name.endswith('_loss')
  }


def fingerprint(workdir: str) -> str:
  """Returns the fingerprint of the last checkpoint."""
  return [r for r in rows(workdir) if r['kind'] == 'checkpoint'][-1][
    'fingerprint'
  ]


def rehearse(folder: str) -> bool:
  """Trains three times; returns whether all agree."""
  plain, fused, killed = (
    os.path.join(folder, name) for name in ('plain', 'fused', 'killed')
  )
  said = finish(start('xla', plain), "XLA's attention")
  data = os.path.join(plain, 'data')
  assert f'on {DEVICES} x cpu' in said, said
  said = finish(start('fused', fused, data), 'kernels, interpreted')
  both = 'length 128, 512: attention fused' in said
  process = start('fused', killed, data)
  kill_in_the_second_phase(process, killed)
  finish(start('fused', killed, data), 'kernels, killed and resumed')
  one, other = losses(plain), losses(fused)
  if one.keys() != other.keys():
    print(f'rows of one run only: {sorted(one.keys() ^ other.keys())}')
    return False
  worst = max(abs(other[key] / one[key] - 1) for key in one)
  kinds = sorted({key[0] for key in one})
  print(
    f'{len(one)} losses ({" and ".join(kinds)}) of both phases differ by '
    f'{worst:.1e} of their size at most (bar {TOLERANCE:.0e})'
  )
  marks = fingerprint(fused), fingerprint(killed)
  print(f'fingerprints: {marks[0]} in one go, {marks[1]} killed and resumed')
  return both and worst <= TOLERANCE and marks[0] == marks[1]


def main() -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--folder', help='for the runs; default: a new one')
  parser.add_argument('--run', nargs=3, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.run:
    train_here(*args.run)
    return 0
  with tempfile.TemporaryDirectory() as scratch:
    good = rehearse(args.folder or scratch)
  print(f'verdict: {"ok" if good else "NOT OK"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
