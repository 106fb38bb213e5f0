"""Kills a run repeatedly, and compares its result with an unkilled run's.

  python benchmarks/proofs/kill.py --kills=25
  python benchmarks/proofs/kill.py --kills=10 --signal=TERM
  python benchmarks/proofs/kill.py --kills=10 --storage=gs
  python benchmarks/proofs/kill.py --kills=5 --platform=cuda
  python benchmarks/proofs/kill.py --kills=10 --body=modern

A small model with dropout, accumulation and two phases (128, then 512 tokens).
Kills are aimed at saves, steps, starts, compilation and the change of phase,
spread over the whole run. With --storage=gs, the run that is killed has its
working directory and its data in a bucket of an emulator; the other one is on
disk, as always. With --platform=cuda, XLA is asked for deterministic ops, and
the model is in bfloat16, for which `auto` takes our kernels. Prints where each
kill hit, according to the run's output and files. The exit code is 1 unless the
fingerprint, the exported weights and every loss are equal, and enough kills hit
saves, the change of phase and both phases. 25 take five minutes on two cores.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import emulator
import small_run

from bert_jax.runtime import storage
from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LENGTHS, STEPS = (128, 512), (60, 30)
EVERY = 3  # steps between checkpoints
LIMIT = 600  # seconds; no kill has to be waited for as long
ARGUMENTS = [
  '--config=' + os.path.join(ROOT, 'configs/tiny.py:smoke'),
  f'--config.phases.seq_length={LENGTHS[0]},{LENGTHS[1]}',
  f'--config.phases.steps={STEPS[0]},{STEPS[1]}',
  '--config.phases.batch_size=8,8',
  '--config.phases.accumulate=2,2',
  '--config.phases.max_predictions=20,76',
  f'--config.checkpoint.every={EVERY}',
  '--config.eval.every=20',
  '--config.log.every=1',
]
STEP = re.compile(r'^step (\d+)/', re.MULTILINE)
PLACES = ('starting', 'compiling', 'training', 'inside a save')


def start(workdir, output, *more):
  """Starts a run whose output goes to the file `output`."""
  env = {
    'JAX_PLATFORMS': 'cpu',
    **os.environ,
    'PYTHONPATH': os.pathsep.join([ROOT, os.environ.get('PYTHONPATH', '')]),
    'PYTHONUNBUFFERED': '1',
    # Its own cache, so that the killed run has to compile.
    'JAX_COMPILATION_CACHE_DIR': re.sub(r'(\.\d+)?\.out$', '.xla', output),
  }
  command = [sys.executable, '-m', 'bert_jax.main', f'--workdir={workdir}']
  with open(output, 'w') as out:
    return subprocess.Popen(
      [*command, *ARGUMENTS, *more], env=env, stdout=out, stderr=out
    )


def said(output):
  with open(output, errors='replace') as file:
    return file.read()


def finish(workdir, output, *more):
  """Runs to the end; returns `small_run.describe` of the run."""
  if start(workdir, output, *more).wait():
    sys.exit(f'the run failed:\n{said(output)[-3000:]}')
  return small_run.describe(workdir)


def reached(workdir, text):
  """Returns the last step that is in the log or that the process has printed."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  logged = [r['step'] for r in rows if r['kind'] == 'train']
  return max([*logged, *map(int, STEP.findall(text))], default=0)


def save_under_way(workdir, text):
  """Returns whether this process has left a checkpoint half written."""
  if 'model: ' not in text:  # only then is what the one before left cleared
    return False
  folder = os.path.join(workdir, 'checkpoints')
  if not storage.is_remote(workdir):
    return any('orbax-checkpoint-tmp' in x for x in os.listdir(folder))
  # Without a name of its own, it lacks its mark; the newest is not deleted.
  names = storage.list_names(folder) if storage.exists(folder) else []
  newest = max((int(x) for x in names if x.isdecimal()), default=None)
  mark = os.path.join(folder, str(newest), 'commit_success.txt')
  return newest is not None and not storage.exists(mark)


def place(workdir, text):
  """Returns which of PLACES a process is at, or was when it died."""
  if save_under_way(workdir, text):
    return 'inside a save'
  count = re.search(r'^compiling (\d+) programs', text, re.MULTILINE)
  if not count:
    return 'starting'
  compiled = f'compiled {count[1]} programs' in text
  return 'training' if compiled else 'compiling'


def is_time(workdir, text, aim, target):
  """Returns whether a process is where the kill is aimed."""
  if aim == 'compiling':
    return place(workdir, text) == 'compiling'
  # Steps of this process only: the log holds those of the one before, too.
  steps = STEP.findall(text)
  here = bool(steps) and int(steps[-1]) >= target
  if aim == 'inside a save':
    return here and save_under_way(workdir, text)
  return here


def wait_for(process, workdir, output, aim, target, rng):
  """Returns True when it is time to kill, False if the run ended before."""
  deadline = time.monotonic() + LIMIT
  if aim == 'starting':
    time.sleep(rng.uniform(0.2, 6))
    return process.poll() is None
  while process.poll() is None:
    if is_time(workdir, said(output), aim, target):
      most = {'compiling': 2.0, 'training': 0.4, 'inside a save': 0.03}[aim]
      time.sleep(rng.uniform(0, most))
      return process.poll() is None
    if time.monotonic() > deadline:
      sys.exit(f'waited {LIMIT} s for {aim} at step {target}')
    time.sleep(0.001)
  return False


def kill(workdir, output, more, signum, aim, target, rng):
  """Starts the run and kills it; returns (place, step), None if it ended."""
  process = start(workdir, output, *more)
  try:
    if not wait_for(process, workdir, output, aim, target, rng):
      return None
    found = place(workdir, said(output))
    process.send_signal(signum)
    code = process.wait(LIMIT)
  finally:
    process.kill()
  text = said(output)
  if signum == signal.SIGKILL:
    found = place(workdir, text)  # dead, so this is exact
  elif not text:  # Python itself was starting
    if code not in (-signum, 143):
      sys.exit(f'exit code {code} after SIGTERM while starting')
  elif code != 143 or 'resume with the same command' not in text:
    sys.exit(f'exit code {code} after SIGTERM, expected 143:\n{text[-3000:]}')
  return found, reached(workdir, text)


def plan(kills, rng):
  """Returns (aim, step) of each kill, in the order of the steps."""
  last = sum(STEPS) - 2 * EVERY
  steps = [0, STEPS[0] - 1, STEPS[0], STEPS[0] + 1][: max(1, kills // 4)]
  steps += [rng.randrange(last) for _ in range(kills - len(steps))]
  aims = ['inside a save', 'training', 'inside a save', 'training', 'starting']
  found = [(aims[i % 5], step) for i, step in enumerate(sorted(steps))]
  for step in {0, STEPS[0]}.intersection(steps):
    found[sorted(steps).index(step)] = ('compiling', step)
  return found


def report(kills, found):
  """Prints how many kills hit which place; returns whether enough were."""
  table = collections.Counter((p, s >= STEPS[0]) for p, s in found)
  print(f'{"":14} {LENGTHS[0]:5d} {LENGTHS[1]:5d} tokens')
  for name in PLACES:
    print(f'{name:14} {table[name, False]:5d} {table[name, True]:5d}')
  saves = sum(p == 'inside a save' for p, _ in found)
  near = sum(abs(step - STEPS[0]) <= EVERY for _, step in found)
  print(f'{near} within {EVERY} steps of the switch')
  if kills < 10:  # too few for every place
    return len(found) == kills
  phases = {step >= STEPS[0] for _, step in found}
  return (
    len(found) == kills
    and saves >= kills / 5
    and near >= 2
    and len(phases) == 2
  )


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--kills', type=int, default=25)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--signal', choices=['KILL', 'TERM'], default='KILL')
  parser.add_argument('--storage', choices=['disk', 'gs'], default='disk')
  parser.add_argument('--platform', choices=['cpu', 'cuda'], default='cpu')
  parser.add_argument('--body', choices=['classic', 'modern'])
  parser.add_argument('--workdir', help='is kept; default: a temporary folder')
  options = parser.parse_args()
  os.environ['JAX_PLATFORMS'] = options.platform
  if options.platform == 'cuda':
    flags = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{flags} --xla_gpu_deterministic_ops=true'
    ARGUMENTS.append('--config.model.dtype=bfloat16')
  if options.body == 'modern':
    ARGUMENTS[0] += ',body=modern'
  rng = random.Random(options.seed)
  signum = signal.Signals['SIG' + options.signal]
  begin = time.monotonic()
  with contextlib.ExitStack() as stack:
    scratch = os.path.abspath(
      options.workdir or stack.enter_context(tempfile.TemporaryDirectory())
    )
    os.makedirs(scratch, exist_ok=True)
    output = os.path.join(scratch, f'{options.signal}_{options.seed}')
    workdir, data = output, os.path.join(scratch, 'whole', 'data')
    if os.path.exists(workdir):
      sys.exit(f'{workdir} exists; remove it or give another --seed.')
    whole = finish(
      os.path.join(scratch, 'whole'), os.path.join(scratch, 'whole.out')
    )
    print(f'uninterrupted: fingerprint {whole["fingerprint"]}', flush=True)
    if options.storage == 'gs':
      os.environ.update(
        emulator.environment(stack.enter_context(emulator.running()))
      )
      os.environ['XDG_CACHE_HOME'] = os.path.join(scratch, 'cache')
      workdir = f'gs://{emulator.BUCKET}/killed'
      data = emulator.upload(data, f'gs://{emulator.BUCKET}/data')
    more = ['--config.data.dir=' + data]
    found = []
    for n, (aim, step) in enumerate(plan(options.kills, rng), 1):
      hit = kill(workdir, f'{output}.{n}.out', more, signum, aim, step, rng)
      found += [hit] if hit else []
      text = f'{hit[0]}, step {hit[1]}' if hit else 'not killed: it ended'
      seconds = time.monotonic() - begin
      print(f'{n:3d} {options.signal} {seconds:4.0f} s  {text}', flush=True)
    killed = finish(workdir, output + '.out', *more)
  print(f'killed: fingerprint {killed["fingerprint"]}')
  good = report(options.kills, found)
  if not good:
    print('the kills are not spread as they should be; give another --seed')
  for name in whole:
    good &= whole[name] == killed[name]
    print(f'{name} {"equal" if whole[name] == killed[name] else "DIFFER"}')
  seconds = time.monotonic() - begin
  print(
    f'verdict: {"ok" if good else "FAILED"}, {len(found)} kills by '
    f'SIG{options.signal} in {seconds:.0f} s'
  )
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
