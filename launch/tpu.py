"""Trains on rented TPUs: rents them, watches the run, gives them back.

  python launch/tpu.py run --name=large --config=configs/large.py \\
    --workdir=gs://BUCKET/large --topology=v5litepod-16 --zone=us-east5-b --spot

docs/launch.md leads there from an empty Google Cloud project.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert_jax import errors
from launch import archive, control, gke, records, start, tick
from launch.world import Unknown, World, say, warn

# Seconds between two looks; shorter in rehearsals.
_PERIOD = 'BERT_JAX_LAUNCH_PERIOD'
_ACTS = {
  'run': (start.run, 'start a run on Cloud TPU, or go on with it'),
  'tick': (control.look_once, 'look once, do what is next; 75: look again'),
  'gke': (gke.run, 'print a JobSet for a GKE cluster with TPUs'),
  'archive': (None, 'write what the image of launch/Dockerfile is built from'),
  'ls': (control.show_all, 'list all that is rented, in all zones'),
  'status': (control.show_status, 'how far a run is'),
  'logs': (control.show_logs, 'what its hosts print'),
  'stop': (control.stop, 'save a checkpoint, then give the hosts back'),
  'down': (control.down, 'delete everything now; fails while anything is left'),
}
_RUNS = ('run', 'gke')
_NEEDED = {
  'name': 'of the run and of its resources',
  'config': 'such as configs/large.py:smoke; --config.field=value may follow',
  'workdir': 'gs://BUCKET/FOLDER of the run',
  'topology': 'the TPUs: v5litepod-16, v4-32, or v5e:4x4 (chips along each axis)',
}
_VALUES = {
  'slices': (int, 1, 'slices, joined by the network'),
  'service_account': (str, None, "the hosts'; in gke, the pods' of Kubernetes"),
  'max_hours': (float, 72.0, 'stop after so many hours of rent (default: 72)'),
}
_RUN_VALUES = {
  'network': (str, None, "of the hosts; default: 'default'"),
  'subnetwork': (str, None, 'of the hosts'),
  'max_usd': (float, None, 'stop when the rent, by --price, is so many USD'),
  'price': (float, None, 'US dollars per chip and hour; default: a dated list'),
}
_RUN_SWITCHES = {
  'flex_start': 'rent hosts that Google ends half an hour after the limit',
  'reserved': 'use a reservation',
  'internal_ips': 'give the hosts no external addresses',
  'no_preflight': 'do not compile the run first: fit and time are not known',
  'yes': 'rent without asking',
  'dry_run': 'print the request instead of sending it',
}


def make_parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  raw = argparse.RawDescriptionHelpFormatter
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
  acts = parser.add_subparsers(dest='act', required=True, metavar='COMMAND')
  for act, (_, text) in _ACTS.items():
    made = acts.add_parser(act, help=text, description=text, allow_abbrev=False)
    add = made.add_argument
    if act in _RUNS:
      _add_run(add, act)
    elif act not in ('ls', 'archive'):
      more = '?' if act == 'down' else None
      add('name', help='--name of the run', nargs=more)
      add('--workdir', help='of the run, if it was started on another machine')
    if act == 'logs':
      add('--worker', type=int, help='only this host')
      add('-f', '--follow', action='store_true', help='go on')
    if act == 'down':
      add('--all', action='store_true', help='of all runs')
  return parser


def _add_run(add, act):
  for name, text in _NEEDED.items():
    add(f'--{name}', required=True, help=text)
  more = _RUN_VALUES if act == 'run' else {}
  for name, (kind, value, text) in (_VALUES | more).items():
    add(f'--{name}', type=kind, default=value, help=text)
  add('--spot', action='store_true', help='hosts that may be taken away')
  if act == 'gke':
    add('--image', required=True, help='made by launch/Dockerfile')
    add('--queue', help='LocalQueue of Kueue')
    return
  add('--zone', required=True, help='zones in order: us-east5-b,europe-west4-b')
  text = 'a further argument of "queued-resources create"; repeatable'
  add('--gcloud_arg', action='append', default=[], help=text)
  for name, text in _RUN_SWITCHES.items():
    add(f'--{name}', action='store_true', help=text)


def main(argv: list[str], world: World | None = None) -> int:
  """Runs the command in the world, for which tests give a stand-in."""
  given, rest = make_parser().parse_known_args(argv)
  world = world or World(period=float(os.environ.get(_PERIOD, World.period)))
  try:
    return _run(given, rest, world)
  except Exception as error:  # whatever it was, hosts may be running
    if given.act != 'tick' or isinstance(error, errors.UserError):
      raise
    warn(f'look again in a moment: {error!r}')
    return tick.AGAIN


def _run(given, rest, world) -> int:
  act, _ = _ACTS[given.act]
  if given.act == 'archive':
    return sys.stdout.buffer.write(archive.make()[0]) and 0
  if given.act in _RUNS:
    given.overrides = rest
    return act(given, world)
  if rest:
    raise errors.UserError(f'{rest[0]} is not an argument; see --help.')
  if given.act == 'down' and bool(given.name) == given.all:
    raise errors.UserError('give either NAME or --all.')
  which = () if given.act == 'ls' else (given.name, given.workdir)
  noted = records.read_note(which and given.name)
  if which and given.workdir not in (None, noted.get('workdir')):
    noted = {}  # a run of the same name, started on another machine
  world.project = noted.get('project') or start.choose_project(world)
  say(f'project {world.project}')
  logs = (given.worker, given.follow) if given.act == 'logs' else ()
  return act(world, *which, *logs)


if __name__ == '__main__':
  try:
    sys.exit(main(sys.argv[1:]))
  except (errors.UserError, Unknown, OSError) as error:
    warn(f'error: {error}')
    sys.exit(1)
  except KeyboardInterrupt:
    sys.exit(130)
