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
from launch import archive, control, gke, start
from launch.world import Unknown, World, warn

# Seconds between two looks; shorter in rehearsals.
_PERIOD = 'BERT_JAX_LAUNCH_PERIOD'
_RUNS = {
  'run': (start.run, 'start a run on Cloud TPU, or go on with it'),
  'gke': (gke.run, 'print a JobSet for a GKE cluster with TPUs'),
}
_LOOKS = {
  'status': (control.show_status, 'how far a run is'),
  'logs': (control.show_logs, 'what its hosts print'),
  'stop': (control.stop, 'save a checkpoint, then give the hosts back'),
  'down': (control.down, 'delete everything now; fails while anything is left'),
  'ls': (control.show_all, 'list all that is rented, in all zones'),
}
_OTHERS = {
  'tick': (control.look_once, 'look once, do what is next; 75: look again'),
  'archive': (archive.run, 'write what launch/Dockerfile is built from'),
}
# {argument: (its type, its default or ... if it must be given, what it is)}.
_VALUES = {
  'name': (str, ..., 'of the run and of its resources'),
  'config': (str, ..., 'such as configs/large.py:smoke; --config.field=value'),
  'workdir': (str, ..., 'gs://BUCKET/FOLDER of the run'),
  'topology': (str, ..., 'v5litepod-16, or v5e:4x4 (chips along each axis)'),
  'slices': (int, 1, 'slices, joined by the network'),
  'service_account': (str, None, "the hosts'; in gke, the pods' of Kubernetes"),
  'max_hours': (float, 72.0, 'stop after so many hours of rent (default: 72)'),
}
_GKE_VALUES = {
  'image': (str, ..., 'made by launch/Dockerfile'),
  'queue': (str, None, 'LocalQueue of Kueue'),
}
_RUN_VALUES = {
  'zone': (str, ..., 'zones in order: us-east5-b,europe-west4-b'),
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
  for act, (function, text) in (_RUNS | _LOOKS | _OTHERS).items():
    made = acts.add_parser(act, help=text, description=text, allow_abbrev=False)
    made.set_defaults(function=function, name=None, workdir=None)
    add, switches = made.add_argument, {}
    if act in _RUNS:
      more = _RUN_VALUES if act == 'run' else _GKE_VALUES
      for name, (kind, value, text) in (_VALUES | more).items():
        needed = {'required': True} if value is ... else {'default': value}
        add(f'--{name}', type=kind, help=text, **needed)
      switches = {'spot': 'hosts that may be taken away'}
    elif act not in ('ls', 'archive'):
      add(
        'name', help='--name of the run', nargs='?' if act == 'down' else None
      )
      add('--workdir', help='of the run, if it was started on another machine')
    if act == 'run':
      text = 'a further argument of "queued-resources create"; repeatable'
      add('--gcloud_arg', action='append', default=[], help=text)
      switches |= _RUN_SWITCHES
    if act == 'logs':
      add('--worker', type=int, help='only this host')
      add('-f', '--follow', action='store_true', help='go on')
    if act == 'down':
      switches = {'all': 'of all runs'}
    for name, text in switches.items():
      add(f'--{name}', action='store_true', help=text)
  return parser


def main(argv: list[str], world: World | None = None) -> int:
  """Runs the command in the world, for which tests give a stand-in."""
  given, given.overrides = make_parser().parse_known_args(argv)
  if given.overrides and given.act not in _RUNS:
    word = given.overrides[0]
    raise errors.UserError(f'{word} is not an argument; see --help.')
  world = world or World(period=float(os.environ.get(_PERIOD, World.period)))
  if given.act in _LOOKS:
    control.enter(world, given)
  return given.function(world, given)


if __name__ == '__main__':
  try:
    sys.exit(main(sys.argv[1:]))
  except (errors.UserError, Unknown, OSError) as error:
    warn(f'error: {error}')
    sys.exit(1)
  except KeyboardInterrupt:
    sys.exit(130)
