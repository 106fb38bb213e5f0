"""Compares training on 1 to 8 devices of 1 to 4 hosts; kills and stops hosts.

  python benchmarks/proofs/hosts.py [--body=modern]

Processes on this machine stand for hosts, forced CPU devices for their chips: 1
process x 1, 2, 4 and 8 devices, 2 x 4 and 4 x 2. The global batches on the
devices must be equal byte for byte (ids, masks, labels, row order). The losses
of 20 steps with dropout must agree to a relative 1e-6 (they are float32 sums,
and a unit in the last place of a loss of 7 is 5e-7). A 2 x 4 run that is
stopped by a signal to one process must resume from the same fingerprint on
1 x 1, 1 x 8 and 4 x 2. A fine-tuning run whose batches have several lengths
must have the same losses and score on 1 x 1, 1 x 4 and 2 x 2.

Then two processes train until one is killed, is stopped by SIGSTOP (and later
goes on), raises an error, or hangs in its main thread; one process alone hangs,
too. All must end within 90 s with an exit code after which a run is started
again, and the same command must end with the bits of an uninterrupted run: last
fingerprint, losses, export. A hang counts after 10 s instead of 600 s, and XLA
optimises little, to spend less time on compilation. --only=SIGKILL,hangs does
some of this part alone. The exit code is 1 if something differs.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import small_run

from bert_jax import errors
from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
# Processes, and devices of each.
LAYOUTS = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (4, 2))
RESUMED = ((1, 1), (1, 8), (4, 2))
FINE_TUNED = ((1, 1), (1, 4), (2, 2))
STEPS, STOP_AFTER, TOLERANCE = 20, 6, 1e-6
BODY = ',body=modern' if '--body=modern' in sys.argv else ''
CONFIG = f'configs/tiny.py:smoke,log.every=1,dropout=0.1{BODY}'
END_SECONDS = 90
HANG_SECONDS = 10  # without an update, instead of 600
# After all of these the same command goes on.
ENDS = {errors.OTHER, errors.HUNG, -signal.SIGABRT}
# bert_jax.main with batches by length, which so short a run would not have.
_BY_LENGTH = """
import runpy
from bert_jax.finetuning import batches
batches.pays = lambda *given: True
runpy.run_module('bert_jax.main', run_name='__main__', alter_sys=True)
"""


def start(layout, *command, envs=None):
  """Starts a command, once per process of a layout.

  Args:
    layout: number of processes, and of devices of each.
    command: arguments of Python.
    envs: are added to the environment of each process.
  """
  count, devices = layout
  with socket.socket() as found:
    found.bind(('localhost', 0))
    port = found.getsockname()[1]
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
    'PYTHONPATH': ROOT,
  }
  processes = []
  for k in range(count):
    address = [f'--coordinator=localhost:{port}', f'--process_id={k}']
    address = address if count > 1 else []
    processes.append(
      subprocess.Popen(
        [sys.executable, *command, f'--num_processes={count}', *address],
        cwd=ROOT,
        env=env | (envs[k] if envs else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
    )
  return processes


def train(layout, workdir, data=''):
  more = [f'--config.data.dir={data}'] if data else []
  config = f'--config={CONFIG},steps={STEPS}'
  command = ['-m', 'bert_jax.main', config, f'--workdir={workdir}', *more]
  return start(layout, *command)


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
  from bert_jax.parallel import device_mesh, distributed
  from bert_jax.pretraining import pretrain, training_data
  from bert_jax.trainer import task
  from configs import tiny

  distributed.start(
    options.coordinator, options.num_processes, options.process_id
  )
  c = tiny.get_config(f'{CONFIG},steps={STEPS}'.partition(':')[2])
  config_check.check(c)
  c.data.dir = options.print_batches
  data = training_data.check_data(c, '')
  sys.stdout.flush()
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
    command = __file__, f'--print_batches={data}', *sys.argv[1:]
    texts = outputs(start(layout, *command))
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


def write_sentences(folder):
  """Writes sentences whose adjective tells their label; returns the flags."""
  rng, adjectives = random.Random(0), ('good', 'fine', 'bad', 'poor')
  others = 'the a film book song was is very so .'.split()
  special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
  os.makedirs(folder)
  vocab = pathlib.Path(folder, 'vocab.txt')
  vocab.write_text('\n'.join([*special, *others, *adjectives, '']))
  for split, rows in (('train', 480), ('dev', 100)):
    lines = ['text\tlabel']
    for _ in range(rows):
      words = rng.choices(others, k=rng.randrange(2, 20))
      words[rng.randrange(len(words))] = adjective = rng.choice(adjectives)
      label = 'praise' if adjective in adjectives[:2] else 'blame'
      lines.append(f'{" ".join(words)}\t{label}')
    pathlib.Path(folder, f'{split}.tsv').write_text('\n'.join([*lines, '']))
  return [
    '--config=configs/classify.py:smoke,epochs=1,learning_rate=1e-3,log.every=1'
    + BODY,
    *(f'--config.data.input={folder}', f'--config.data.vocab={vocab}'),
    *('--config.data.max_documents=0', '--config.eval.sequences=100'),
  ]


def check_finetuning(scratch):
  """Fine-tunes on each layout; returns whether losses and scores agree."""
  data, whole, good = os.path.join(scratch, 'sentences'), None, True
  flags = write_sentences(data)
  for layout in FINE_TUNED:
    name = '{} x {}'.format(*layout)
    workdir = os.path.join(scratch, f'finetuned_{layout[0]}_{layout[1]}')
    command = '-c', _BY_LENGTH, f'--workdir={workdir}'
    [text, *_] = outputs(start(layout, *command, *flags))
    rows = losses(workdir)
    with open(os.path.join(workdir, 'results.json')) as file:
      found = rows, json.load(file)['metrics']
    whole = whole or found
    most = max(abs(whole[0][s] - x) / whole[0][s] for s, x in rows.items())
    [lengths] = re.findall('batches of (.*) tokens', text)
    lengths = lengths.count(',') + 1
    good = good and most <= TOLERANCE and found[1] == whole[1] and lengths > 1
    print(
      f'fine-tuning on {name}: {len(rows)} updates of {lengths} lengths, losses '
      f'within {most:.1e} of their size, accuracy {found[1]["accuracy"]}',
      flush=True,
    )
  return good


def start_failing(scratch, workdir, data, count, victim=0, kind='nothing'):
  """Starts processes of which one raises an error, hangs, or does nothing."""
  env = {
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
    'JAX_COMPILATION_CACHE_DIR': os.path.join(scratch, 'xla'),
  }
  kinds = [kind if k == victim else 'nothing' for k in range(count)]
  command = [
    os.path.join(os.path.dirname(__file__), 'failing_host.py'),
    f'--config={CONFIG},steps={STEPS},checkpoint.every=5',
    *(f'--workdir={workdir}', f'--config.data.dir={data}'),
  ]
  seconds = HANG_SECONDS if kind == 'hangs' else 600
  envs = [{**env, 'FAILS': f'{x} {STOP_AFTER} {seconds}'} for x in kinds]
  return start((count, 1), *command, envs=envs)


@functools.cache
def describe_whole(scratch, data, count):
  """Returns the bits of an uninterrupted run, see `small_run.describe`."""
  workdir = os.path.join(scratch, f'whole_{count}')
  outputs(start_failing(scratch, workdir, data, count))
  return small_run.describe(workdir)


def check_failure(scratch, data, case):
  """Lets one process fail; all must end in time, and resume with equal bits.

  Args:
    scratch: folder for those of the runs.
    data: folder of prepared data.
    case: see `list_failures`.

  Returns:
    Whether they did.
  """
  how, victim, count, code, words = case
  signum, name = getattr(signal, how, None), f'{how}_{victim}_{count}'
  whole = describe_whole(scratch, data, count)
  workdir = os.path.join(scratch, name)
  processes = start_failing(scratch, workdir, data, count, victim, how)
  wait_for_step(workdir, STOP_AFTER - 1, processes)
  if signum:
    processes[victim].send_signal(signum)
  begin = time.monotonic()
  watched = [p for k, p in enumerate(processes) if k != victim or not signum]
  texts, ends = [], []
  for process in watched:
    with contextlib.suppress(subprocess.TimeoutExpired):
      texts.append(process.communicate(timeout=2 * END_SECONDS)[0])
    ends.append(time.monotonic() - begin)
  codes = [process.poll() for process in watched]
  if signum == signal.SIGSTOP:
    processes[victim].send_signal(signal.SIGCONT)
    with contextlib.suppress(subprocess.TimeoutExpired):
      processes[victim].communicate(timeout=END_SECONDS)
    codes.append(processes[victim].poll())
  for process in processes:
    process.kill()
    process.communicate()
  good = max(ends) <= END_SECONDS and set(codes) <= ENDS
  good = good and code in (None, processes[victim].returncode)
  missing = [x for x in words if x not in '\n'.join(texts)]
  outputs(start_failing(scratch, workdir, data, count))
  same = small_run.describe(workdir) == whole
  print(
    f'{how} host {victim} of {count}: the rest ended after {max(ends):.0f} s '
    f'with exit codes {codes}; the same command then ended with '
    f'{"equal bits" if same else "OTHER BITS"}'
    f'{f"; nobody said {missing}: {texts}" if missing else ""}',
    flush=True,
  )
  return good and same and not missing


def list_failures():
  """Lists (how a process fails, its number, processes, its code, words)."""
  hangs = ['error: no training step', 'in fail_at', 'in run_phase']
  return (
    *(
      (how, k, 2, code, words)
      for how, code, words in (
        ('SIGKILL', None, []),
        ('SIGSTOP', None, []),
        ('raises', errors.OTHER, ['no answer from the disk']),
        ('hangs', errors.HUNG, hangs),
      )
      for k in (1, 0)
    ),
    ('hangs', 0, 1, errors.HUNG, hangs),
  )


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  for name in ('print_batches', 'coordinator'):
    parser.add_argument(f'--{name}', help='used by the script itself')
  for name in ('num_processes', 'process_id'):
    parser.add_argument(f'--{name}', type=int, help='used by the script itself')
  parser.add_argument('--body', choices=['classic', 'modern'])
  parser.add_argument('--only', help='SIGKILL, SIGSTOP, raises, hangs: some')
  options = parser.parse_args()
  if options.print_batches:
    print_batches(options)
    return 0
  with tempfile.TemporaryDirectory() as scratch:
    if options.only:
      good, chosen = True, options.only.split(',')
      outputs(train((1, 1), os.path.join(scratch, 'first')))
      data = os.path.join(scratch, 'first', 'data')
    else:
      good, data, whole = check_layouts(scratch)
      good = check_resume(scratch, data, whole) and good
      good = check_finetuning(scratch) and good
      chosen = [how for how, *_ in list_failures()]
    cases = [x for x in list_failures() if x[0] in chosen]
    good = all([check_failure(scratch, data, x) for x in cases]) and good
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
