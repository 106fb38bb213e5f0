"""`ls`, `status`, `logs`, `tick`, `stop` and `down`: looking at runs, ending them."""

import argparse

from bert_jax import errors
from launch import bucket, queued, records, tick
from launch.supervisor import Ledger
from launch.world import World, log_in, read_setting, say, warn

_IN_BUCKET = ('tick', 'status', 'logs')
_DOWN_SECONDS = 900  # `down` waits for what is being deleted or cannot be yet
_LOOKS = 4  # at zones that do not answer, before `down` takes their word for it


def choose_project(world: World) -> str:
  """Returns gcloud's project."""
  log_in(world)
  if not (project := read_setting(world, 'core', 'project')):
    raise errors.UserError('no project: gcloud config set project NAME')
  return project


def enter(world: World, given: argparse.Namespace):
  """Works where a run is, by what is noted of it: its project and workdir."""
  note = records.read_note(given.name) if given.name else {}
  if given.workdir not in (None, note.get('workdir')):
    note = {}  # a run of the same name, started on another machine
  given.workdir = given.workdir or note.get('workdir')
  if not given.workdir and given.act in _IN_BUCKET:
    raise errors.UserError(f'{given.name} is not known here; give --workdir.')
  world.project = note.get('project') or choose_project(world)
  say(f'project {world.project}')


def _look(world, given) -> tuple[list[queued.Resource], dict[str, str]]:
  """Returns (what the name means, {zone: why it did not answer}).

  A name is of a run or of one resource, or None. Two runs of a name differ in
  their working directories.
  """
  resources, silent = queued.find(world, ['-'])
  name, known = given.name, given.workdir
  if name is None or any(item.name == name for item in resources):
    return [x for x in resources if name in (None, x.name)], silent
  resources = [item for item in resources if item.run == name]
  if known:
    own = (known, None)
    return [x for x in resources if x.read('workdir') in own], silent
  if len({item.read('workdir') for item in resources}) > 1:
    names = ', '.join(item.name for item in resources)
    raise errors.UserError(f'several runs are named {name}; give one: {names}')
  return resources, silent


def show_all(world: World, given: argparse.Namespace) -> int:
  """Lists all resources, or a run's; returns 1 if a zone did not answer."""
  resources, silent = _look(world, given)
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


def show_status(world: World, given: argparse.Namespace) -> int:
  """Prints what exists for a run and how far it is."""
  show_all(world, given)
  text = bucket.read(world, f'{given.workdir}/status.json').text
  say(text or 'there is no status yet')
  return 0 if text else 1


def show_logs(world: World, given: argparse.Namespace) -> int:
  """Prints the logs of the hosts, and goes on with `follow`."""
  shown = {}
  while True:
    logs = bucket.list_objects(world, f'{given.workdir}/logs')
    tick.show_logs(world, logs, shown, given.worker)
    if not given.follow:
      return 0
    world.sleep(world.period)


def look_once(world: World, given: argparse.Namespace) -> int:
  """Takes one look at a launch and does what it calls for, see `tick.take`."""
  try:
    enter(world, given)
    return tick.take(world, given.workdir)
  except errors.UserError:
    raise
  except Exception as error:  # whatever it was, hosts may be running
    warn(f'look again in a moment: {error!r}')
    return tick.AGAIN


def stop(world: World, given: argparse.Namespace) -> int:
  """Asks the hosts to save a checkpoint and to delete themselves."""
  resources, silent = _look(world, given)
  _warn_silent(silent)
  if not any([_end(world, given, item) for item in [None, *resources]]):
    raise errors.UserError(f'no launch of {given.name} is under way.')
  say('a checkpoint is saved within minutes, then the hosts go: see ls.')
  return 0


def _end(world, given, item) -> bool:
  """Writes that the launch of a resource ends, or that of the ledger.

  Nobody asks for more hosts then. Returns whether there is one.
  """
  place, launch = given.workdir, item and item.launch
  try:
    if item:
      place = item.read('workdir')
    else:
      stored, _ = records.load(world, place) if place else (Ledger(''), None)
      if stored.job and stored.plan.get('name') == given.name:
        launch = '' if stored.reason else stored.job
    if launch:
      end = f'{place}/launch/{launch}/end'
      bucket.write(world, end, 'reason=stopped\n', '0')
  except bucket.Changed:
    pass  # it ends already
  except Exception as error:
    if given.act == 'stop':
      raise
    # A courtesy, which must not stop the brake.
    warn(f'{error!r}: what watches the run may ask for more hosts: end it.')
  return bool(launch)


def down(world: World, given: argparse.Namespace) -> int:
  """Deletes everything of a run or resource, or all, by the label alone.

  Returns 0 if nothing is left, 1 if something is or a zone does not say.
  """
  if bool(given.name) == given.all:
    raise errors.UserError('give either NAME or --all.')
  begin, told, left = world.now(), set(), _LOOKS
  _end(world, given, None)
  while True:
    resources, silent = _look(world, given)
    left = left - 1 if silent else _LOOKS
    late = world.now() - begin > _DOWN_SECONDS
    if late or not resources and (left == 0 or not silent):
      break
    for item in resources:
      if item.launch not in told:
        told.add(item.launch)
        _end(world, given, item)
      if item.state == queued.PROVISIONING and item.name not in told:
        told.add(item.name)
        say(f'{item.name} is being set up and cannot be deleted yet')
      if item.state not in queued.FIXED:
        say(f'deleting {item.name} in {item.zone}')
        queued.delete(world, item)
    world.sleep(world.period)
  for item in resources:
    warn(f'STILL THERE, AND COSTING: {item.name} in {item.zone}')
  if not _warn_silent(silent) and not resources:
    say('nothing is left.')
    return 0
  warn('run this command again until nothing is left.')
  return 1
