"""Sweeps with XManager: each work unit is a run of its own.

  python launch/xm.py --where=local --config=configs/tiny.py:smoke \\
    --workdir=runs/sweep --sweep='optimizer.learning_rate=1e-4,2e-4'

--where=tpu starts launch/tpu.py for each run instead; what it needs comes after
--, with --workdir=gs://BUCKET/FOLDER. Several --sweep give all combinations.
Needs `pip install xmanager`, in an environment of its own if need be: --python
is the interpreter that has bert_jax.
"""

import argparse
import asyncio
import itertools
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def make_parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  add = parser.add_argument
  add('--where', choices=('local', 'tpu'), required=True)
  add('--config', required=True, help='such as configs/base.py')
  add('--workdir', required=True, help='folder for the runs, one in each')
  add(
    '--sweep',
    action='append',
    required=True,
    metavar='FIELD=A,B',
    help='a field of the config and its values',
  )
  add('--name', default='sweep', help='of the experiment and of its runs')
  add('--python', default=sys.executable, help='interpreter of the runs')
  add('rest', nargs='*', help='after --: more arguments for each run')
  return parser


def list_points(sweeps: list[str]) -> list[dict[str, str]]:
  """Returns {field: value} of every combination.

  Args:
    sweeps: such as 'optimizer.learning_rate=1e-4,2e-4'.

  Raises:
    ValueError: if one has no field or no values.
  """
  axes = []
  for text in sweeps:
    field, equals, values = text.partition('=')
    if not (field and equals and all(values.split(','))):
      raise ValueError(f'--sweep={text} must be FIELD=VALUE,VALUE.')
    axes.append([(field, value) for value in values.split(',')])
  return [dict(point) for point in itertools.product(*axes)]


def make_arguments(
  given: argparse.Namespace, number: int, point: dict[str, str]
) -> list[str]:
  """Returns the arguments of one run, behind the interpreter.

  Args:
    given: the arguments of this command.
    number: of the work unit, from 1.
    point: {field: value}.
  """
  folder = '_'.join(f'{field.split(".")[-1]}={v}' for field, v in point.items())
  common = [
    f'--config={given.config}',
    f'--workdir={given.workdir}/{re.sub(r"[^A-Za-z0-9=_.-]", "", folder)}',
    *(f'--config.{field}={value}' for field, value in point.items()),
    *given.rest,
  ]
  if given.where == 'local':
    return ['-m', 'bert_jax.main', *common]
  start = [os.path.join(ROOT, 'launch', 'tpu.py'), 'run']
  return [*start, f'--name={given.name}-{number}', '--yes', *common]


async def run_all(given: argparse.Namespace, points: list[dict[str, str]]):
  """Adds a work unit for each point and waits for it.

  Local runs come one after the other, since each takes all devices.
  """
  # Only here, so that --help and tests need no XManager.
  from absl import flags
  from xmanager import xm, xm_local

  flags.FLAGS(sys.argv[:1])  # XManager reads its own, all at their defaults
  executor = xm_local.Local()
  async with xm_local.create_experiment(given.name) as experiment:
    spec = xm.Binary(path=given.python)
    [executable] = experiment.package([xm.Packageable(spec, executor.Spec())])
    units = []
    for number, point in enumerate(points, 1):
      unit = await experiment.add(
        xm.Job(executable, executor, args=make_arguments(given, number, point))
      )
      if given.where == 'local':
        await unit.wait_until_complete()
      units.append(unit)
    for unit in units:
      await unit.wait_until_complete()


def main(argv: list[str]):
  """Runs the command."""
  given = make_parser().parse_args(argv)
  asyncio.run(run_all(given, list_points(given.sweep)))


if __name__ == '__main__':
  main(sys.argv[1:])
