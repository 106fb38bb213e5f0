"""Pre-trains from different initial weights: docs/plateau.md, docs/modern.md.

  python benchmarks/measure/starts.py --data=RUN/data --workdir=DIR --study=parts

RUN/data is the prepared text of a run, such as that of
`configs/budget.py:cpu_quarter`. Studies:

  parts  1,000 updates of BERT-Tiny with and without each part of the starts
  rates  BERT's own start with other learning rates
  modern the same updates of the modern body, and what its start is made of
  long   the recipe of cpu_hour for 3 x 5,130 updates, of three starts

A killed command goes on where it was.
"""

import argparse
import itertools
import json
import pathlib
import runpy
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# `half` has every second head at a neighbour, -1 and +1 of four heads; `no_common` is
# `wide` without a direction that all words share.
ATTENTION = 'random', 'wide', 'half', 'neighbours', 'no_common'


def list_runs(study: str) -> dict[str, tuple[str, dict]]:
  """Returns {name: (attention, config by field)} of a study."""
  if study == 'long':
    return {
      x: (x, _make_long(own=x == 'random'))
      for x in ('neighbours', 'half', 'random')
    }
  short = {
    'phases.seq_length': '(64,)',
    'phases.steps': '(1000,)',
    'phases.batch_size': '(32,)',
    'phases.accumulate': '(1,)',
    'phases.max_predictions': '(26,)',
    'phases.learning_rates': '()',
    'phases.warmups': '()',
    'optimizer.learning_rate': '2e-3',
    'optimizer.warmup_steps': '200',
    'eval.every': '100',
    'eval.sequences': '1000',
    'checkpoint.every': '1000',
  }
  if study == 'rates':
    return {
      f'random, rate {x}': (
        'random',
        short | _choose(False, False) | {'optimizer.learning_rate': x},
      )
      for x in ('5e-4', '1e-3', '4e-3')
    }
  if study == 'modern':
    starts = 'random', 'no_common', 'wide'
    cells = {x: (x, short | _choose(True, True)) for x in starts}
    return cells | {'random alone': ('random', short | _choose(False, False))}
  cells = itertools.product(
    ('random', 'wide', 'neighbours'), (False, True), (False, True)
  )
  return {
    f'{attention}{", bias" if bias else ""}{", vectors" if vectors else ""}': (
      attention,
      short | _choose(bias, vectors),
    )
    for attention, bias, vectors in cells
  }


def _choose(bias, vectors):
  return {
    'objective.unigram_bias': str(bias),
    'objective.word_vectors': str(vectors),
  }


def _make_long(own):
  """Returns the fields of the long runs; with BERT's own start or not."""
  return {
    **_choose(not own, not own),
    'phases.seq_length': '(64,64,64)',
    'phases.steps': '(5130,5130,5130)',
    'phases.batch_size': '(32,32,32)',
    'phases.accumulate': '(1,1,1)',
    'phases.max_predictions': '(26,20,15)',
    'phases.learning_rates': '(1.1e-3,0.0,0.0)',
    'phases.warmups': '(400,0,0)',
    'eval.every': '1026',
    'checkpoint.every': '1026',
  }


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, help='prepared data')
  parser.add_argument('--workdir', required=True)
  parser.add_argument(
    '--study', choices=('parts', 'rates', 'modern', 'long'), required=True
  )
  parser.add_argument('--seeds', type=int, default=3)
  options = parser.parse_args()
  runs = list_runs(options.study)
  for seed, name in itertools.product(range(options.seeds), runs):
    folder = find_folder(options.workdir, name) / f'{seed}'
    if not (folder / 'results.json').exists():
      print(f'{name}, seed {seed}', flush=True)
      start(folder, options, *runs[name], seed)
    print_table(options.workdir, runs)


def start(folder, options, attention, fields, seed):
  """Runs one training, or goes on with it."""
  folder.mkdir(parents=True, exist_ok=True)
  budget = 'cpu_hour' if options.study == 'long' else 'cpu_quarter'
  names = {'half': 'neighbours', 'no_common': 'wide'}
  start_of = names.get(attention, attention)
  fields = {**fields, 'model.attention_init': start_of, 'seed': str(seed)}
  if options.study == 'modern':
    budget += ',body=modern'
    fields['data.rows'] = 'pairs'  # those that BERT's body reads
  command = [
    sys.executable,
    __file__,
    attention,
    f'--config={ROOT}/configs/budget.py:{budget},layout=files',
    f'--workdir={folder}',
    f'--config.data.dir={options.data}',
    *(f'--config.{field}={value}' for field, value in fields.items()),
  ]
  with open(folder / 'output.txt', 'a') as log:
    subprocess.run(command, check=True, stdout=log, stderr=log)


def train(attention, arguments):
  """Trains as bert_jax.main does, from a start of `ATTENTION`."""
  import numpy as np

  from bert_jax.model import initial_attention

  if attention == 'no_common':
    initial_attention.make_common = lambda c: np.zeros((1, c.hidden_size))
  elif attention == 'half':
    initial_attention._OFFSETS = initial_attention._OFFSETS[:2]
  sys.argv[1:] = arguments
  runpy.run_module('bert_jax.main', run_name='__main__')


def print_table(workdir, runs):
  """Prints the evaluations of all runs that have ended, as Markdown."""
  rows = {name: list(read_curves(workdir, name)) for name in runs}
  steps = sorted(
    {step for curves in rows.values() for x in curves for step in x}
  )
  print(
    '| start | seeds | exit | ' + ' | '.join(f'{x:,}' for x in steps) + ' |'
  )
  print('|---' * (3 + len(steps)) + '|')
  for name, curves in rows.items():
    if not curves:
      continue
    exits = [
      next((f'{s:,}' for s, x in c.items() if 'plateau_exit_tokens' in x), '-')
      for c in curves
    ]
    cells = [
      describe([c[step] for c in curves if step in c], 'mlm_loss', 1)
      + f', {describe([c[step] for c in curves if step in c], "mlm_accuracy", 100)}'
      for step in steps
    ]
    print(
      f'| {name} | {len(curves)} | {", ".join(exits)} | {" | ".join(cells)} |'
    )


def read_curves(workdir, name):
  """Yields {update: its evaluation} of each seed that has ended."""
  for path in sorted(find_folder(workdir, name).glob('*/results.json')):
    text = (path.parent / 'metrics.jsonl').read_text()
    rows = map(json.loads, text.splitlines())
    yield {x['step']: x for x in rows if x.get('kind') == 'eval'}


def describe(rows, field, unit):
  """Returns the mean over the seeds, with their standard deviation."""
  values = [row[field] * unit for row in rows if field in row]
  if not values:
    return '-'
  spread = statistics.stdev(values) if len(values) > 1 else 0
  digits = 3 if unit == 1 else 1
  return f'{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}'


def find_folder(workdir, name):
  return pathlib.Path(workdir, name.replace(', ', '+').replace(' ', '_'))


if __name__ == '__main__':
  if sys.argv[1] in ATTENTION:  # one run, in a process of its own
    train(sys.argv[1], sys.argv[2:])
  else:
    main()
