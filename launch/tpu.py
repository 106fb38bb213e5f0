"""Trains on rented TPUs: rents them, watches the run, gives them back.

  python launch/tpu.py run --name=large --config=configs/large.py \\
    --workdir=gs://BUCKET/large --topology=v5litepod-16 --zone=us-east5-b --spot

docs/launch.md leads there from an empty Google Cloud project.
"""

import argparse
import contextlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert_jax import errors
from launch import archive, gke, queued, start, tick
from launch.world import Changed, Unknown, World, say, warn

# Seconds between two looks; shorter in rehearsals.
_PERIOD = 'BERT_JAX_LAUNCH_PERIOD'
_DOWN_LOOKS = 60  # until `down` gives up what is being deleted or cannot be yet
_SILENT_LOOKS = 4  # at zones that do not answer, before it takes their word
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
  'max_usd': (float, None, 'stop when the rent, by --price, is so many USD'),
  'price': (float, None, 'US dollars per chip and hour; default: a dated list'),
}
_SWITCHES = {
  'spot': 'hosts that may be taken away',
  'flex_start': 'rent hosts that Google ends half an hour after the limit',
  'no_preflight': 'do not compile the run first: fit and time are not known',
  'yes': 'rent without asking',
  'dry_run': 'print the request instead of sending it',
}


def _look(world, target) -> tuple[list[queued.Resource], dict[str, str]]:
  """Returns (what there is of a target or in all, {zone: why it did not answer}).

  A target is a working directory, a name of resources, or None for all.
  """
  try:
    world.choose_project()
    resources, silent = queued.find(world)
  except Unknown as error:
    return [], {'gcloud': str(error)}
  names = lambda x: (None, x.name, x.read('workdir'))  # noqa: E731
  return [item for item in resources if target in names(item)], silent


def show_all(world: World, given: argparse.Namespace) -> int:
  """Lists all resources; returns 1 if a zone did not answer."""
  resources, silent = _look(world, None)
  if not resources and not silent:
    say('nothing is rented.')
  for item in resources:
    line = f'{item.run:20} {item.state:13} {item.zone:18} {item.name} '
    say(f'{line}{item.read("workdir") or ""} {item.message}'.rstrip())
  return _warn_silent(silent)


def _warn_silent(silent) -> int:
  for zone, why in silent.items():
    warn(f'{zone} could not be asked what is there: {why}')
  return 1 if silent else 0


def stop(world: World, given: argparse.Namespace) -> int:
  """Asks the hosts to save a checkpoint and to delete themselves."""
  if not _end_stored(world, given.target):
    raise errors.UserError(f'no launch is under way in {given.target}: see ls.')
  say('a checkpoint is saved within minutes, then the hosts go: see ls.')
  return 0


def _end_stored(world, workdir) -> bool:
  """Ends the launch that the ledger is of; returns whether there is one."""
  ledger, _ = tick.load(world, workdir)
  # Also of one that has ended: its hosts may be there still.
  world.project = ledger.plan.get('project', '')
  if not ledger.job or ledger.reason:
    return False
  return _end(world, workdir, ledger.job)


def _end(world, workdir, launch) -> bool:
  """Writes that a launch ends: nobody asks for more hosts then."""
  with contextlib.suppress(Changed):  # it ends already
    world.write(f'{workdir}/launch/{launch}/end', b'reason=stopped\n', '0')
  return True


def down(world: World, given: argparse.Namespace) -> int:
  """Deletes everything of a run or resource, or all, by the label alone.

  Returns 0 if nothing is left, 1 if something is or a zone does not say.
  """
  if bool(given.target) == given.all:
    raise errors.UserError('give either a run or --all.')
  told, left = set(), _SILENT_LOOKS
  if given.target and given.target.startswith('gs://'):
    _try_to_end(_end_stored, world, given.target)
  known = given.all or bool(world.project)  # from a ledger
  for _ in range(_DOWN_LOOKS):
    resources, silent = _look(world, given.target)
    known = known or bool(resources)
    left = left - 1 if silent else _SILENT_LOOKS
    if not resources and (left == 0 or not silent):
      break
    for item in resources:
      if item.launch not in told:
        told.add(item.launch)
        _try_to_end(_end, world, item.read('workdir'), item.launch)
      if item.state not in queued.FIXED:
        say(f'deleting {item.name} in {item.zone}')
        queued.delete(world, item)
      elif item.name not in told:
        told.add(item.name)
        say(f'{item.name} is {item.state} and cannot be deleted yet')
    world.sleep(world.period)
  for item in resources:
    warn(f'STILL THERE, AND COSTING: {item.name} in {item.zone}')
  if not _warn_silent(silent) and not resources:
    if not known:  # a wrong name must not look like an end
      raise errors.UserError(f'nothing is known of {given.target}: see ls.')
    say('nothing is left.')
    return 0
  warn('run this command again until nothing is left.')
  return 1


def _try_to_end(function, *arguments):
  try:  # a courtesy, which must not stop the brake
    function(*arguments)
  except Exception as error:
    warn(f'{error!r}: what watches the run may ask for more hosts: end it.')


_COMMANDS = {
  'run': (start.run, 'start a run on Cloud TPU, or go on with it'),
  'gke': (gke.run, 'print a JobSet for a GKE cluster with TPUs'),
  'tick': (
    lambda world, given: tick.watch(world, given.target, once=True),
    'say how far a run is, do what is next; 75: look again',
  ),
  'stop': (stop, 'save a checkpoint, then give the hosts back'),
  'down': (down, 'delete everything now; fails while anything is left'),
  'ls': (show_all, 'list all that is rented, in all zones'),
  'archive': (archive.run, 'write what launch/Dockerfile is built from'),
}


def make_parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  raw = argparse.RawDescriptionHelpFormatter
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
  acts = parser.add_subparsers(dest='act', required=True, metavar='COMMAND')
  for act, (function, text) in _COMMANDS.items():
    made = acts.add_parser(act, help=text, description=text, allow_abbrev=False)
    made.set_defaults(function=function, target=None)
    add, values, switches = made.add_argument, {}, {}
    if act == 'gke':
      values, switches = _VALUES | _GKE_VALUES, {'spot': _SWITCHES['spot']}
    elif act == 'run':
      values, switches = _VALUES | _RUN_VALUES, _SWITCHES
      text = 'a further argument of "queued-resources create"; repeatable'
      add('--gcloud_arg', action='append', default=[], help=text)
    elif act == 'down':
      add('target', nargs='?', help='as for stop, or a name that ls shows')
      switches = {'all': 'of all runs'}
    elif act not in ('ls', 'archive'):
      add('target', metavar='WORKDIR', help='gs://BUCKET/FOLDER of the run')
    for name, (kind, value, text) in values.items():
      needed = {'required': True} if value is ... else {'default': value}
      add(f'--{name}', type=kind, help=text, **needed)
    for name, text in switches.items():
      add(f'--{name}', action='store_true', help=text)
  return parser


def main(argv: list[str], world: World | None = None) -> int:
  """Runs the command in the world, for which tests give a stand-in."""
  given, given.overrides = make_parser().parse_known_args(argv)
  if given.overrides and given.act not in ('run', 'gke'):
    word = given.overrides[0]
    raise errors.UserError(f'{word} is not an argument; see --help.')
  given.target = given.target and given.target.rstrip('/')
  world = world or World(period=float(os.environ.get(_PERIOD, World.period)))
  return given.function(world, given)


if __name__ == '__main__':
  try:
    sys.exit(main(sys.argv[1:]))
  except (errors.UserError, Unknown, OSError) as error:
    warn(f'error: {error}')
    sys.exit(1)
  except KeyboardInterrupt:
    sys.exit(130)
