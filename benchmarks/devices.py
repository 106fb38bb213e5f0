"""Trains on 1, 2, 4 and 8 devices and compares batches, losses, checkpoints.

  python benchmarks/devices.py

Forces CPU devices. The global batches, as the devices hold them, must be equal
to the byte (ids, masks, labels, row order); the losses of 20 steps with dropout
must agree to 1e-6 of their size; a run on 8 devices that is stopped in the
middle must go on from the same fingerprint on 1 and on 4. Takes about three
minutes on two cores; exit code 1 if something differs.
"""

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from bert_jax import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEPS, TOLERANCE = 20, 1e-6
SMOKE = os.path.join(ROOT, f'configs/tiny.py:smoke,steps={STEPS},log.every=1')


def start(devices, *command):
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
    'PYTHONPATH': ROOT,
  }
  return subprocess.Popen(
    [sys.executable, *command], env=env, stdout=subprocess.PIPE, text=True
  )


def train(devices, workdir, data=''):
  more = [f'--config.data.dir={data}'] if data else []
  command = ['-m', 'bert_jax.main', f'--config={SMOKE}', f'--workdir={workdir}']
  return start(devices, *command, *more)


def losses(workdir):
  """Returns {step: loss} of a run."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return {r['step']: r['loss'] for r in rows if r['kind'] == 'train'}


def difference(a, b):
  """Returns the largest difference of two runs' losses, relative."""
  return max(abs(a[s] - b[s]) / abs(a[s]) for s in {*a, *b})


def print_batches(data):
  """Prints the SHA-256 of all global batches, read back from the devices."""
  import jax

  from bert_jax import config, sharding, task
  from bert_jax.tasks import pretrain
  from configs import tiny

  c = tiny.get_config(SMOKE.partition(':')[2])
  config.check(c)
  made, phase = pretrain.make(c, data), task.phases(c)[0]
  mesh, digest = sharding.make_mesh(), hashlib.sha256()
  for step in range(STEPS):
    batch = sharding.put_batch(mesh, made.train_batch(phase, step))
    for name in sorted(batch):
      assert len(batch[name].sharding.device_set) == jax.device_count()
      digest.update(jax.device_get(batch[name]).tobytes())
  print(digest.hexdigest())


def check_resume(scratch, data, whole):
  """Stops a run on 8 devices and continues it on 1 and on 4."""
  stopped = os.path.join(scratch, 'stopped')
  process = train(8, stopped, data)
  while process.poll() is None and (
    max(losses(stopped), default=0) < STEPS // 2
  ):
    time.sleep(0.05)
  process.send_signal(signal.SIGTERM)
  out = process.communicate()[0]
  mark = out.rpartition('fingerprint=')[2].split()[0]
  good = process.returncode == 143
  for devices in (1, 4):
    workdir = f'{stopped}_{devices}'
    shutil.copytree(stopped, workdir)
    out = train(devices, workdir, data).communicate()[0]
    worst = difference(whole, losses(workdir))
    same = f'fingerprint={mark}' in out.partition('resumed at')[2][:80]
    print(
      f'8 devices, then {devices}: restored fingerprint '
      f'{"equal" if same else "DIFFERS"}, losses within {worst:.1e}'
    )
    good = good and same and worst <= TOLERANCE
  return good


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--print_batches', help='used by the script itself')
  options = parser.parse_args()
  if options.print_batches:
    print_batches(options.print_batches)
    return 0
  with tempfile.TemporaryDirectory() as scratch:
    runs, digests = {}, {}
    data = os.path.join(scratch, 'data1', 'data')
    for n in (1, 2, 4, 8):
      workdir = os.path.join(scratch, f'data{n}')
      train(n, workdir, data if n > 1 else '').communicate()
      runs[n] = losses(workdir)
      process = start(n, __file__, f'--print_batches={data}')
      digests[n] = process.communicate()[0].strip()
      worst = difference(runs[1], runs[n])
      print(
        f'{n} devices: batches {digests[n][:16]}, losses {len(runs[n])}, '
        f'last {runs[n][STEPS]:.6f}, within {worst:.1e} of one device',
        flush=True,
      )
    good = len(set(digests.values())) == 1 and '' not in digests.values()
    good &= all(len(r) == STEPS for r in runs.values())
    good &= all(difference(runs[1], r) <= TOLERANCE for r in runs.values())
    good &= check_resume(scratch, data, runs[1])
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
