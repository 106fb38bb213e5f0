"""Trains on 1, 2, 4 and 8 devices and compares batches, losses, checkpoints.

  python benchmarks/devices.py

Forces CPU devices. The global batches, as the devices hold them, must be equal
to the byte (ids, masks, labels, row order); the losses of 20 steps with dropout
must agree to 1e-6 of their size (they are float32 sums, and a unit in the last
place of a loss of 7 is 5e-7); a run on 8 devices that is stopped in the middle
must go on from the same fingerprint on 1 and on 4. Takes about three minutes on
two cores; exit code 1 if something differs.
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
DEVICES = (1, 2, 4, 8)
STEPS, STOP_AFTER, TOLERANCE = 20, 6, 1e-6
SMOKE = os.path.join(ROOT, f'configs/tiny.py:smoke,steps={STEPS},log.every=1')


def start(devices, *command):
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
    'PYTHONPATH': ROOT,
  }
  return subprocess.Popen(
    [sys.executable, *command],
    env=env,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def train(devices, workdir, data=''):
  more = [f'--config.data.dir={data}'] if data else []
  command = ['-m', 'bert_jax.main', f'--config={SMOKE}', f'--workdir={workdir}']
  return start(devices, *command, *more)


def output(process, code=0):
  """Returns what a process says; ends the proof if it fails."""
  text = process.communicate()[0]
  if process.returncode != code:
    sys.exit(
      f'exit code {process.returncode}, expected {code}:\n{text[-3000:]}'
    )
  return text


def losses(workdir):
  """Returns {step: loss} of a run."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return {r['step']: r['loss'] for r in rows if r['kind'] == 'train'}


def compare(expected, found):
  """Returns (whether two runs' losses agree, the largest difference)."""
  if sorted(found) != list(range(1, STEPS + 1)):
    sys.exit(f'the log has steps {sorted(found)}, expected 1 to {STEPS}')
  absolute = {s: abs(expected[s] - found[s]) for s in found}
  relative = max(absolute[s] / expected[s] for s in found)
  most = max(absolute.values())
  text = f'losses within {most:.1e} ({relative:.1e} of their size)'
  return relative <= TOLERANCE, text


def print_batches(data):
  """Prints the SHA-256 of all global batches, read back from the devices."""
  import jax

  from bert_jax import config_check, sharding, task
  from bert_jax.tasks import pretrain
  from configs import tiny

  c = tiny.get_config(SMOKE.partition(':')[2])
  config_check.check(c)
  made, phase = pretrain.make(c, data), task.phases(c)[0]
  mesh, digest = sharding.make_mesh(), hashlib.sha256()
  for step in range(STEPS):
    batch = sharding.put_batch(mesh, made.train_batch(phase, step))
    for name in sorted(batch):
      assert len(batch[name].sharding.device_set) == jax.device_count()
      digest.update(jax.device_get(batch[name]).tobytes())
  print(digest.hexdigest())


def check_devices(scratch):
  """Trains on each number of devices; returns (ok, data, losses of one)."""
  data, whole, batches, good = '', None, None, True
  for n in DEVICES:
    workdir = os.path.join(scratch, f'devices_{n}')
    output(train(n, workdir, data))
    data = data or os.path.join(workdir, 'data')
    found = losses(workdir)
    whole = whole or found
    text = output(start(n, __file__, f'--print_batches={data}'))
    digest = text.split()[-1]
    batches = batches or digest
    near, difference = compare(whole, found)
    good = good and near and digest == batches
    print(
      f'{n} devices: batches {digest[:16]}, {len(found)} steps, last loss '
      f'{found[STEPS]:.6f}, {difference}',
      flush=True,
    )
  return good, data, whole


def check_resume(scratch, data, whole):
  """Stops a run on 8 devices and continues it on 1 and on 4."""
  stopped, good = os.path.join(scratch, 'stopped'), True
  process = train(8, stopped, data)
  while process.poll() is None and (
    max(losses(stopped), default=0) < STOP_AFTER
  ):
    time.sleep(0.01)
  process.send_signal(signal.SIGTERM)
  text = output(process, 128 + signal.SIGTERM)
  mark = text.rpartition('fingerprint=')[2].split()[0]
  step = max(losses(stopped))
  for devices in (1, 4):
    workdir = f'{stopped}_{devices}'
    shutil.copytree(stopped, workdir)
    text = output(train(devices, workdir, data))
    same = f'resumed at step {step}, fingerprint={mark}\n' in text
    near, difference = compare(whole, losses(workdir))
    good = good and near and same
    print(
      f'8 devices to step {step}, then {devices}: fingerprint {mark} '
      f'{"restored" if same else "NOT RESTORED"}, {difference}',
      flush=True,
    )
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
    good, data, whole = check_devices(scratch)
    good = check_resume(scratch, data, whole) and good
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
