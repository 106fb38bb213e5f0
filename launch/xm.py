"""Sweeps with XManager: each work unit is a run of its own.

  python launch/xm.py --where=local --config=configs/tiny.py:smoke \\
    --workdir=runs/sweep --sweep='optimizer.learning_rate=1e-4,2e-4'

--where=tpu starts launch/tpu.py for each run instead; what that needs comes after
--, with --workdir=gs://BUCKET/FOLDER. Several --sweep give all combinations.
"""

import argparse
import asyncio
import itertools
import os
import re
import sys

_TPU = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tpu.py')


def make_parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  raw = argparse.RawDescriptionHelpFormatter
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
  add = parser.add_argument
  add('--where', choices=('local', 'tpu'), required=True)
  for name in ('config', 'workdir'):
    add(f'--{name}', required=True)
  text = 'FIELD=VALUE,VALUE of the config'
  add('--sweep', action='append', type=parse_sweep, help=text, required=True)
  add('--name', default='sweep', help='of experiment and runs')
  add('rest', nargs='*', help='after --: arguments of each run')
  return parser


def parse_sweep(text: str) -> list[str]:
  """Returns ['FIELD=A', 'FIELD=B'] for 'FIELD=A,B'."""
  field, _, values = text.partition('=')
  if not (field and all(values.split(','))):
    raise argparse.ArgumentTypeError(f'{text} must be FIELD=VALUE,VALUE')
  return [f'{field}={value}' for value in values.split(',')]


def list_runs(given: argparse.Namespace) -> list[list[str]]:
  """Returns the arguments of every run, behind the interpreter."""
  runs = []
  for number, point in enumerate(itertools.product(*given.sweep), 1):
    # Values that differ in what is removed have folders that differ.
    folder = '_'.join([str(number), *(x.split('.', 1)[-1] for x in point)])
    folder = re.sub(r'[^A-Za-z0-9=_.-]', '', folder)
    words = [f'--config={given.config}', f'--workdir={given.workdir}/{folder}']
    words += [*(f'--config.{text}' for text in point), *given.rest]
    on_tpu = [_TPU, 'run', f'--name={given.name}-{number}', '--yes']
    start = on_tpu if given.where == 'tpu' else ['-m', 'bert_jax.main']
    runs.append([*start, *words])
  return runs


async def run_all(given: argparse.Namespace):
  """Adds a work unit for each run; local ones come one after the other."""
  # Only here, so that --help and tests need no XManager.
  from absl import flags

  try:
    from xmanager import xm, xm_local
  except ImportError as error:
    sys.exit(f'error: {error}; pip install xmanager')

  flags.FLAGS(sys.argv[:1])  # XManager reads its own, all at their defaults
  executor = xm_local.Local()
  async with xm_local.create_experiment(given.name) as experiment:
    spec = xm.Packageable(xm.Binary(path=sys.executable), executor.Spec())
    [program] = experiment.package([spec])
    units = []
    for words in list_runs(given):
      units.append(await experiment.add(xm.Job(program, executor, args=words)))
      if given.where == 'local':
        await units.pop().wait_until_complete()
    await asyncio.gather(*(unit.wait_until_complete() for unit in units))


if __name__ == '__main__':
  asyncio.run(run_all(make_parser().parse_args(sys.argv[1:])))
