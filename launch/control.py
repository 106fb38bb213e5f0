"""`ls`, `status`, `logs`, `stop` and `down`: looking at runs and ending them."""

from collections.abc import Iterable

from bert_jax import errors
from launch import bucket, queued, records, terminal, tick
from launch.world import World, say, warn

_DOWN_SECONDS = 900  # `down` waits for what is being deleted or cannot be yet
_LOOKS = 4  # at zones that do not answer, before `down` takes their word for it


def look(
  world: World, name: str | None, zones: Iterable[str] = ()
) -> tuple[list[queued.Resource], dict[str, str]]:
  """Returns (what carries the label, {zone: why it did not answer}).

  `name` is of a run or of one resource, or None. Besides all zones together, the
  given ones and those noted for the run are asked one by one.
  """
  noted = records.read_note(name).get('zones', [])
  found, silent = queued.find(world, ['-', *zones, *map(str, noted)])
  if silent:  # a zone that does not exist has nothing to say
    exist = queued.list_zones(world) or silent
    silent = {zone: silent[zone] for zone in silent if zone in exist}
  return [r for r in found if name in (None, r.run, r.name)], silent


def show_all(world: World, name: str | None = None) -> int:
  """Lists all resources, or a run's; returns 1 if a zone did not answer."""
  found, silent = look(world, name)
  if not found and not silent:
    say('nothing is rented.')
  for item in found:
    line = f'{item.run:20} {item.state:13} {item.zone:18} {item.name} '
    say(f'{line}{item.read("workdir") or ""} {item.message}'.rstrip())
  return _warn_silent(silent)


def _warn_silent(silent) -> int:
  for zone, why in silent.items():
    warn(f'{zone} could not be asked what is there: {why}')
  return 1 if silent else 0


def find_workdir(world: World, name: str, workdir: str | None) -> str:
  """Returns the working directory of a run."""
  known = [workdir or records.read_note(name).get('workdir')]
  known += [] if known[0] else [x.read('workdir') for x in look(world, name)[0]]
  if not any(known):
    raise errors.UserError(f'{name} is not known here; give --workdir=gs://...')
  return next(filter(None, known))


def show_status(world: World, name: str, workdir: str | None) -> int:
  """Prints what exists for a run and how far it is."""
  show_all(world, name)
  workdir = find_workdir(world, name, workdir)
  status = terminal.read_status(world, workdir)
  if not status:
    say(f'{workdir} has no status yet')
    return 1
  now = bucket.read(world, f'{workdir}/launch/ledger.json').now
  at = status.get('time')
  age = f' ({now - at:,.0f} s ago)' if now and isinstance(at, float) else ''
  say(f'{terminal.describe_status(status)}{age}')
  return 0


def show_logs(world: World, name: str, workdir, worker, follow: bool) -> int:
  """Prints the logs of the hosts, and goes on with `follow`."""
  screen, workdir = terminal.Screen(world), find_workdir(world, name, workdir)
  while True:
    screen.show_logs(bucket.list_objects(world, f'{workdir}/logs'), worker)
    if not follow:
      return 0
    world.sleep(world.period)


def look_once(world: World, name: str, workdir: str | None) -> int:
  """Takes one look at a launch and does what it calls for, see `tick.take`."""
  workdir = find_workdir(world, name, workdir)
  if bucket.read(world, f'{workdir}/launch/ledger.json').text is None:
    raise errors.UserError(f'no launch was started in {workdir}: see run.')
  return tick.take(world, workdir, terminal.Screen(world, follows=False))


def stop(world: World, name: str, workdir: str | None) -> int:
  """Asks the hosts to save a checkpoint and to delete themselves."""
  found, silent = look(world, name)
  _warn_silent(silent)
  if not _write_end(world, name, workdir, _choose(name, workdir, found)):
    raise errors.UserError(f'no launch of {name} is under way.')
  say(f'{name} saves a checkpoint within minutes, then its hosts go: see ls.')
  return 0


def _write_end(world, name, workdir, found) -> bool:
  """Writes that the launches under way end; returns whether there are any."""
  places = {(item.read('workdir'), item.launch) for item in found}
  known = workdir or records.read_note(name).get('workdir')
  if known:
    stored, _ = records.load(world, known)
    if stored.job and not stored.reason and stored.plan.get('name') == name:
      places.add((known, stored.job))
  for place, launch in places:
    try:
      end = f'{place}/launch/{launch}/end'
      bucket.write(world, end, 'reason=stopped\n', '0')
    except bucket.Changed:
      pass  # it ends already
  return bool(places)


def down(world: World, name: str | None, workdir: str | None) -> int:
  """Deletes everything of a run or resource, or all, by the label alone.

  Returns 0 if nothing is left, 1 if something is or a zone does not say.
  """
  begin, told, found, launches, left = world.now(), set(), [], set(), _LOOKS
  while True:
    every, silent = look(world, name, [item.zone for item in found])
    if name is None or not launches:
      chosen = _choose(name, workdir, every)
      _end_launches(world, name, workdir, chosen, told)
      launches |= {item.launch for item in chosen}
    # What was in a zone that does not answer now is taken to be still there.
    kept = {item[:3]: item for item in found if item.zone in silent}
    kept |= {item[:3]: item for item in every if item.launch in launches}
    found, left = [*kept.values()], left - 1 if silent else _LOOKS
    late = world.now() - begin > _DOWN_SECONDS
    if late or not found and (left == 0 or not silent):
      others = [item for item in every if item.launch not in launches]
      return _tell_left(found, silent, others)
    for item in found:
      if item.state == queued.PROVISIONING and item.name not in told:
        told.add(item.name)
        say(f'{item.name} is being set up and cannot be deleted yet')
      if item.state not in queued.FIXED:
        say(f'deleting {item.name} in {item.zone}')
        queued.delete(world, item)
    world.sleep(world.period)


def _end_launches(world, name, workdir, found, told):
  """Writes once for each run that its launch ends: nobody asks for more."""
  for run in {item.run for item in found} | ({name} if name else set()):
    try:
      if run not in told:
        _write_end(world, run, workdir, [r for r in found if r.run == run])
    except Exception as error:  # a courtesy, which must not stop the brake
      warn(f'{error!r}: what watches {run} may ask for more hosts: end it.')
    told.add(run)


def _choose(name, workdir, found) -> list[queued.Resource]:
  """Returns the resources of the run that is meant, if others share its name."""
  if name is None or any(item.name == name for item in found):
    return found
  known = workdir or records.read_note(name).get('workdir')
  if known:
    return [r for r in found if r.read('workdir') in (known, None)]
  if len({item.read('workdir') for item in found}) > 1:
    names = ', '.join(item.name for item in found)
    raise errors.UserError(f'several runs are named {name}; give one: {names}')
  return found


def _tell_left(found, silent, others) -> int:
  """Says what is left after `down`; returns the exit code."""
  for item in others:
    text = f'{item.name} in {item.zone} is of another run of this name'
    warn(f'{text}, and was left: python launch/tpu.py down {item.name}')
  if not found and not silent:
    say('nothing is left.')
    return 0
  _warn_silent(silent)
  for item in found:
    warn(f'STILL THERE, AND COSTING: {item.name} in {item.zone}')
  warn('run this command again until nothing is left.')
  return 1
