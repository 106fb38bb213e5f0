"""Trains on rented TPUs: rents them, watches the run, gives them back.

  python launch/tpu.py run --name=large --config=configs/large.py \\
    --workdir=gs://BUCKET/large --topology=v5litepod-16 --zone=us-east5-b --spot

docs/launch.md leads there from an empty Google Cloud project. Run it from the
root of the repository, with gcloud installed and logged in.
"""

import argparse
import dataclasses
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert_jax import errors
from launch import commands, control, project, slices, start
from launch.world import World

# Seconds between two looks; shorter in rehearsals.
_PERIOD = 'BERT_JAX_LAUNCH_PERIOD'


def make_parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  acts = parser.add_subparsers(dest='act', required=True, metavar='COMMAND')
  _add_run(acts)
  act = acts.add_parser('ls', help='list all that is rented, in all zones')
  act.set_defaults(name=None, workdir=None)
  for name, text in (
    ('status', 'how far a run is'),
    ('logs', 'what its hosts print'),
    ('stop', 'save a checkpoint, then give the hosts back'),
    ('down', 'delete everything at once; fails while anything is left'),
  ):
    act = acts.add_parser(name, help=text, description=text)
    more = {'nargs': '?'} if name == 'down' else {}
    act.add_argument('name', help='--name of the run', **more)
    act.add_argument(
      '--workdir', help='of the run, if it was started on another machine'
    )
    if name == 'logs':
      act.add_argument('--worker', type=int, help='only this host')
      act.add_argument('-f', '--follow', action='store_true', help='go on')
    if name == 'down':
      act.add_argument('--all', action='store_true', help='of all runs')
  return parser


def _add_run(acts):
  run = acts.add_parser(
    'run',
    allow_abbrev=False,
    help='start a run, or go on watching it',
    description='Starts a run, or goes on watching it: the same command does '
    'both. Further arguments --config.field=value go to the run.',
  )
  add = run.add_argument
  add('--name', required=True, help='of the run and of its resources')
  add('--config', required=True, help='such as configs/large.py:smoke')
  add('--workdir', required=True, help='gs://BUCKET/FOLDER of the run')
  add(
    '--topology',
    required=True,
    help='the TPUs: v5litepod-16, v4-32, or v5e:4x4 (chips along each axis)',
  )
  add(
    '--zone',
    required=True,
    help='zones to try, in this order: us-east5-b,europe-west4-b',
  )
  add('--slices', type=int, default=1, help='slices, joined by the network')
  add(
    '--api',
    choices=slices.APIS,
    help='queued (the Cloud TPU API; usual up to v5e) or compute (Compute '
    'Engine; usual for v5p, v6e and TPU7x)',
  )
  add(
    '--spot',
    action='store_true',
    help='rent at the lower price of hosts that may be taken away at any time',
  )
  _add_limits(add)
  add(
    '--no_preflight',
    action='store_true',
    help='do not compile the run first: neither fit nor time is then known',
  )
  add('--detach', action='store_true', help='watch from the background')
  add('--yes', action='store_true', help='rent without asking')
  add(
    '--dry_run',
    action='store_true',
    help='print every command instead of running it',
  )


def _add_limits(add):
  add(
    '--max_usd',
    type=float,
    help='stop when the rent, by --price, reaches this many US dollars',
  )
  add(
    '--max_hours',
    type=float,
    default=72.0,
    help='stop after so many hours of rent (default: 72)',
  )
  add(
    '--price',
    type=float,
    help='US dollars per chip and hour; default: a dated list price on demand',
  )


def main(argv: list[str], world: World | None = None) -> int:
  """Runs the command; returns its exit code.

  Args:
    argv: the arguments.
    world: acts on the world; tests give a stand-in.
  """
  given, rest = make_parser().parse_known_args(argv)
  if world is None:
    dry = given.act == 'run' and given.dry_run
    world = World(
      run=commands.print_instead if dry else commands.execute,
      period=float(os.environ.get(_PERIOD, World.period)),
    )
  if rest and given.act != 'run':
    raise errors.UserError(f'{rest[0]} is not an argument; see --help.')
  if given.act == 'run':
    given.overrides = rest
    return start.run(given, world)
  if given.act == 'down' and bool(given.name) == given.all:
    raise errors.UserError('give either NAME or --all.')
  found = project.find(world, given.name, given.workdir)
  world = dataclasses.replace(world, run=project.enter(world.run, found))
  if given.act in ('ls', 'down'):
    commands.say(f'project {found}')
  if given.act == 'ls':
    return control.show_all(world)
  if given.act == 'status':
    return control.show_status(world, given.name, given.workdir)
  if given.act == 'logs':
    return control.show_logs(
      world, given.name, given.workdir, given.worker, given.follow
    )
  if given.act == 'stop':
    return control.stop(world, given.name, given.workdir)
  return control.down(world, given.name, given.workdir)


if __name__ == '__main__':
  try:
    sys.exit(main(sys.argv[1:]))
  except (errors.UserError, commands.CommandError) as error:
    sys.exit(f'error: {error}')
  except KeyboardInterrupt:
    sys.exit(130)
