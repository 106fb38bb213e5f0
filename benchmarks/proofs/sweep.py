"""Kills a fine-tuning run and a sweep repeatedly; both end as if unkilled.

  python benchmarks/proofs/sweep.py --kills=20

A small model with dropout learns to tell sentences apart, from random weights.
Its run, and then a sweep of six such runs, are killed by SIGKILL at points that
are spread over all their updates, and while they start. The exit code is 1
unless the fingerprint of the parameters, every exported file and the scores of
the run, and of all runs of the sweep, and the table and results.json of the
sweep, are those without kills. 20 kills of each take about eight minutes on two
idle cores.
"""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LIMIT = 600  # seconds; no kill has to be waited for as long
STEPS, RUNS = 60, 6
GRID = 'learning_rate=1e-3,3e-3 seed=0,1,2'
ADJECTIVES = ('good', 'fine', 'lovely', 'bad', 'poor', 'awful')
OTHERS = ('the', 'a', 'film', 'book', 'song', 'was', 'is', 'very', 'so', '.')


def write_data(folder, rng):
  """Writes a vocabulary, and sentences whose adjective tells their label."""
  os.makedirs(folder)
  special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
  with open(os.path.join(folder, 'vocab.txt'), 'w') as file:
    file.writelines(f'{x}\n' for x in [*special, *OTHERS, *ADJECTIVES])
  for split, rows in (('train', 8 * STEPS), ('dev', 100)):
    with open(os.path.join(folder, f'{split}.tsv'), 'w') as file:
      file.write('text\tlabel\n')
      for _ in range(rows):
        adjective = rng.choice(ADJECTIVES)
        words = rng.choices(OTHERS, k=rng.randrange(2, 20))
        words[rng.randrange(len(words))] = adjective
        label = 'praise' if adjective in ADJECTIVES[:3] else 'blame'
        # One label in eight is wrong, so that scores differ.
        label = (
          rng.choice(['praise', 'blame']) if rng.random() < 1 / 4 else label
        )
        file.write(f'{" ".join(words)}\t{label}\n')


def make_flags(data):
  """Returns the flags of the config."""
  return [
    '--config=' + os.path.join(ROOT, 'configs/classify.py:smoke'),
    f'--config.data.input={data}',
    f'--config.data.vocab={data}/vocab.txt',
    '--config.data.max_documents=0',
    '--config.finetuning.epochs=1',
    '--config.optimizer.learning_rate=1e-3',
    '--config.checkpoint.every=4',
    '--config.log.every=1',
    '--config.eval.every=0',
    '--config.eval.sequences=100',
  ]


def start(module, arguments, output):
  """Starts a command whose output is added to a file."""
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'PYTHONPATH': ROOT,
    # All programs are kept, since they compile fast.
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  command = [sys.executable, '-m', f'bert_jax.{module}', *arguments]
  with open(output, 'a') as out:
    return subprocess.Popen(command, env=env, stdout=out, stderr=out)


def count_steps(workdir):
  """Returns the updates in the logs of a run, or of all runs of a sweep."""
  paths = glob.glob(f'{workdir}/metrics.jsonl')
  paths += glob.glob(f'{glob.escape(workdir)}/*/metrics.jsonl')
  rows = [
    [r['step'] for r in log.read(x) if r['kind'] == 'train'] for x in paths
  ]
  return sum(max(steps, default=0) for steps in rows)


def kill(module, arguments, workdir, output, target, rng):
  """Starts a command and kills it; returns the updates done, None if it ended.

  Args:
    target: updates after which it is killed; None kills it while it starts.
  """
  process = start(module, arguments, output)
  deadline = time.monotonic() + LIMIT
  try:
    if target is None:
      time.sleep(rng.uniform(0.5, 8))
    while target is not None and count_steps(workdir) < target:
      if process.poll() is not None:
        break
      if time.monotonic() > deadline:
        sys.exit(f'waited {LIMIT} s for update {target}')
      time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.5))
    return None if process.poll() is not None else count_steps(workdir)
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()


def finish(module, arguments, output):
  """Runs a command to its end; returns what it printed last."""
  begin = os.path.getsize(output) if os.path.exists(output) else 0
  code = start(module, arguments, output).wait()
  with open(output, errors='replace') as file:
    file.seek(begin)
    text = file.read()
  if code:
    sys.exit(f'{module} failed with exit code {code}:\n{text[-3000:]}')
  return text


def describe_run(workdir):
  """Returns the results of a run, and a hash of each exported file."""
  with open(os.path.join(workdir, 'results.json')) as file:
    found = {'results': json.load(file)}
  export = os.path.join(workdir, 'export')
  for name in sorted(os.listdir(export)):
    content = pathlib.Path(export, name).read_bytes()
    found[name] = hashlib.sha256(content).hexdigest()
  return found


def describe_sweep(workdir, text):
  """Returns the table, the results and every run of a sweep."""
  # The table is between the last empty line and the names of what was written.
  table = text.rpartition('\n\n')[2].replace(workdir, 'DIR')
  with open(os.path.join(workdir, 'results.json')) as file:
    results = file.read()
  runs = sorted(glob.glob(f'{workdir}/*/results.json'))
  found = {'table': table, 'results.json': results, 'runs': len(runs)}
  for path in runs:
    folder = os.path.dirname(path)
    found[os.path.basename(folder)] = describe_run(folder)
  return found


def prove(name, module, make, steps, kills, scratch, rng):
  """Compares a killed with an unkilled one; returns whether they are equal.

  Args:
    make: workdir -> flags.
    steps: updates in all.
  """
  whole, killed = (os.path.join(scratch, f'{name}_{x}') for x in ('a', 'b'))
  describe = (
    describe_sweep if module == 'sweep' else (lambda w, _: describe_run(w))
  )
  expected = describe(whole, finish(module, make(whole), f'{whole}.out'))
  marks = [None if i % 4 == 3 else i * steps // kills for i in range(kills)]
  begin, count = time.monotonic(), 0
  for i, target in enumerate(marks, 1):
    at = kill(module, make(killed), killed, f'{killed}.out', target, rng)
    count += at is not None
    seconds = time.monotonic() - begin
    print(
      f'{name} {i:3d} KILL {seconds:4.0f} s  '
      + (
        f'after {at} of {steps} updates' if at is not None else 'it had ended'
      ),
      flush=True,
    )
  found = describe(killed, finish(module, make(killed), f'{killed}.out'))
  equal = {key: found.get(key) == x for key, x in expected.items()}
  if module == 'sweep':
    print(expected['table'])
  else:
    print(f'fingerprint {expected["results"]["fingerprint"]}')
    print(f'killed      {found["results"]["fingerprint"]}')
  for key in [key for key, same in equal.items() if not same]:
    print(f'{key} DIFFERS')
  good = all(equal.values()) and found.keys() == expected.keys()
  good &= count == kills
  print(f'{name}: {"equal" if good else "FAILED"}, {count} kills', flush=True)
  return good


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--kills', type=int, default=20)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--workdir', help='is kept; default: a temporary folder')
  options = parser.parse_args()
  rng, begin = random.Random(options.seed), time.monotonic()
  with contextlib.ExitStack() as stack:
    scratch = os.path.abspath(
      options.workdir or stack.enter_context(tempfile.TemporaryDirectory())
    )
    write_data(os.path.join(scratch, 'data'), rng)
    config = make_flags(os.path.join(scratch, 'data'))
    os.environ['JAX_COMPILATION_CACHE_DIR'] = os.path.join(scratch, 'xla')
    good = prove(
      'run',
      'main',
      lambda workdir: [*config, f'--workdir={workdir}'],
      STEPS,
      options.kills,
      scratch,
      rng,
    )
    good &= prove(
      'sweep',
      'sweep',
      lambda workdir: [*config, f'--workdir={workdir}', f'--grid={GRID}'],
      RUNS * STEPS,
      options.kills,
      scratch,
      rng,
    )
  seconds = time.monotonic() - begin
  print(f'verdict: {"ok" if good else "FAILED"} in {seconds:.0f} s')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
