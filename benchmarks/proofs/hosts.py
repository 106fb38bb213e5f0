"""Compares training on 1 to 8 devices of 1 to 4 hosts; kills and stops hosts.

  python benchmarks/proofs/hosts.py [--skip_failures]

Processes on this machine stand for hosts, forced CPU devices for their chips: 1
process x 1, 2, 4 and 8 devices, 2 x 4 and 4 x 2. The global batches on the
devices must be equal byte for byte (ids, masks, labels, row order). The losses
of 20 steps with dropout must agree to a relative 1e-6 (they are float32 sums,
and a unit in the last place of a loss of 7 is 5e-7). A 2 x 4 run that is
stopped by a signal to one process must resume from the same fingerprint on
1 x 1, 1 x 8 and 4 x 2. Then one of two processes is killed, which must end the
other within 30 s, or stopped (SIGSTOP), which must end it within 60 s with the
stacks of both; there XLA optimises little, to spend less time on compilation.
The exit code is 1 if something differs.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
# Processes, and devices of each.
LAYOUTS = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (4, 2))
RESUMED = ((1, 1), (1, 8), (4, 2))
STEPS, STOP_AFTER, TOLERANCE = 20, 6, 1e-6
CONFIG = 'configs/tiny.py:smoke,log.every=1,dropout=0.1'
DEAD_SECONDS, STUCK_SECONDS = 30, 60


def start(layout, *command, env=None):
  """Starts a command, once per process of a layout, with `env` added."""
  count, devices = layout
  with socket.socket() as found:
    found.bind(('localhost', 0))
    port = found.getsockname()[1]
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
    'PYTHONPATH': ROOT,
    **(env or {}),
  }
  processes = []
  for k in range(count):
    address = [f'--coordinator=localhost:{port}', f'--process_id={k}']
    address = address if count > 1 else []
    processes.append(
      subprocess.Popen(
        [sys.executable, *command, f'--num_processes={count}', *address],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
    )
  return processes


def train(layout, workdir, data='', steps=STEPS, env=None):
  more = [f'--config.data.dir={data}'] if data else []
  config = f'--config={CONFIG},steps={steps}'
  command = ['-m', 'bert_jax.main', config, f'--workdir={workdir}', *more]
  return start(layout, *command, env=env)


def outputs(processes, code=0):
  """Returns the output of processes; exits if one fails."""
  texts = [process.communicate()[0] for process in processes]
  for process, text in zip(processes, texts, strict=True):
    if process.returncode != code:
      sys.exit(
        f'exit code {process.returncode}, expected {code}:\n{text[-3000:]}'
      )
  return texts


def losses(workdir):
  """Returns {step: loss} of a run."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  return {r['step']: r['loss'] for r in rows if r['kind'] == 'train'}


def compare(expected, found):
  """Returns (whether two runs' losses agree, the largest difference)."""
  if sorted(found) != list(range(1, STEPS + 1)):
    sys.exit(f'the log has steps {sorted(found)}, expected 1 to {STEPS}')
  most = max(abs(expected[s] - found[s]) / expected[s] for s in found)
  return most <= TOLERANCE, f'losses within {most:.1e} of their size'


def print_batches(options):
  """Prints the SHA-256 of all global batches, gathered from the devices."""
  import jax
  from jax.experimental import multihost_utils

  from bert_jax import config_check
  from bert_jax.data import local_data
  from bert_jax.parallel import device_mesh, distributed
  from bert_jax.pretraining import pretrain
  from bert_jax.train import task
  from configs import tiny

  distributed.start(
    options.coordinator, options.num_processes, options.process_id
  )
  c = tiny.get_config(f'{CONFIG},steps={STEPS}'.partition(':')[2])
  config_check.check(c)
  data = local_data.fetch(options.print_batches, c.phases.seq_length)
  made, phase = pretrain.make_task(c, data), task.list_phases(c)[0]
  mesh, digest = device_mesh.make_mesh(), hashlib.sha256()
  rows = device_mesh.find_own_rows(mesh, phase.batch_size)
  if len(rows) * jax.process_count() != phase.batch_size:
    raise ValueError(f'rows {rows} of {phase.batch_size} are no equal share')
  for step in range(STEPS):
    batch = device_mesh.put_batch(mesh, made.train_batch(phase, step, rows))
    whole = multihost_utils.process_allgather(batch, tiled=True)
    for name in sorted(whole):
      digest.update(whole[name].tobytes())
  print(digest.hexdigest(), file=sys.stderr)


def check_layouts(scratch):
  """Trains on each layout; returns (ok, data, losses of one process)."""
  data, whole, batches, good = '', None, None, True
  for layout in LAYOUTS:
    name = '{} x {}'.format(*layout)
    workdir = os.path.join(scratch, name.replace(' ', ''))
    outputs(train(layout, workdir, data))
    data = data or os.path.join(workdir, 'data')
    found = losses(workdir)
    whole = whole or found
    texts = outputs(start(layout, __file__, f'--print_batches={data}'))
    digests = {text.split()[-1] for text in texts}
    batches = batches or digests
    near, difference = compare(whole, found)
    good = good and near and digests == batches and len(digests) == 1
    print(
      f'{name}: batches {" ".join(digests)[:16]}, last loss '
      f'{found[STEPS]:.6f}, {difference}',
      flush=True,
    )
  return good, data, whole


def wait_for_step(workdir, step, processes):
  while max(losses(workdir), default=0) < step:
    if any(process.poll() is not None for process in processes):
      outputs(processes)
      sys.exit(f'the run ended before step {step}')
    time.sleep(0.01)


def check_resume(scratch, data, whole):
  """Stops 2 x 4 by a signal to one process; continues on other layouts."""
  stopped, good = os.path.join(scratch, 'stopped'), True
  processes = train((2, 4), stopped, data)
  wait_for_step(stopped, STOP_AFTER, processes)
  processes[1].send_signal(signal.SIGTERM)
  text = outputs(processes, 128 + signal.SIGTERM)[0]
  mark = text.rpartition('fingerprint=')[2].split()[0]
  step = max(losses(stopped))
  for layout in RESUMED:
    name = '{} x {}'.format(*layout)
    workdir = f'{stopped}_{layout[0]}_{layout[1]}'
    shutil.copytree(stopped, workdir)
    text = outputs(train(layout, workdir, data))[0]
    same = f'resumed at step {step}, fingerprint={mark}\n' in text
    near, difference = compare(whole, losses(workdir))
    good = good and near and same
    print(
      f'2 x 4 to step {step}, then {name}: fingerprint {mark} '
      f'{"restored" if same else "NOT RESTORED"}, {difference}',
      flush=True,
    )
  return good


def check_failure(scratch, data, victim, signum, limit, words):
  """Sends one of two processes a signal; the other must end in time."""
  name = signal.Signals(signum).name
  workdir = os.path.join(scratch, f'{name}_{victim}')
  fast = {'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  processes = train((2, 1), workdir, data, steps=100_000, env=fast)
  wait_for_step(workdir, STOP_AFTER, processes)
  processes[victim].send_signal(signum)
  begin = time.monotonic()
  survivor = processes[1 - victim]
  try:
    text = survivor.communicate(timeout=2 * limit)[0]
  except subprocess.TimeoutExpired:
    text = 'it did not end'
  seconds = time.monotonic() - begin
  for process in processes:
    process.kill()
    process.communicate()
  missing = [w for w in words if w not in text]
  good = seconds <= limit and survivor.returncode != 0 and not missing
  lines = [x for x in text.splitlines() if 'sign of life' in x] or [
    x for x in text.splitlines() if 'rror' in x
  ]
  print(
    f'{name} to host {victim}: host {1 - victim} ended after {seconds:.0f} s '
    f'(limit {limit} s), exit code {survivor.returncode}, said: '
    f'{lines[0][:160] if lines else text[-300:]}'
    f'{f"; it did not say {missing}" if missing else ""}',
    flush=True,
  )
  return good


def check_failures(scratch, data):
  gone = ['gave no sign of life']
  stacks = [*gone, '--- host 0 (', '--- host 1 (', 'loop.py', 'in run_phase']
  cases = (
    (1, signal.SIGKILL, DEAD_SECONDS, gone),
    # jax itself ends those that lose process 0, with its own message.
    (0, signal.SIGKILL, DEAD_SECONDS, []),
    (1, signal.SIGSTOP, STUCK_SECONDS, stacks),
    (0, signal.SIGSTOP, STUCK_SECONDS, stacks),
  )
  return all([check_failure(scratch, data, *case) for case in cases])


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--skip_failures', action='store_true')
  for name in ('print_batches', 'coordinator'):
    parser.add_argument(f'--{name}', help='used by the script itself')
  for name in ('num_processes', 'process_id'):
    parser.add_argument(f'--{name}', type=int, help='used by the script itself')
  options = parser.parse_args()
  if options.print_batches:
    print_batches(options)
    return 0
  with tempfile.TemporaryDirectory() as scratch:
    good, data, whole = check_layouts(scratch)
    good = check_resume(scratch, data, whole) and good
    if not options.skip_failures:
      good = check_failures(scratch, data) and good
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
