"""`ls`, `status`, `logs`, `stop` and `down`: looking at runs and ending them."""

import time

from bert_jax import errors
from launch import (
  bucket,
  commands,
  job,
  ledger_file,
  records,
  resource,
  terminal,
  watch,
)
from launch.world import World

# A reason that `stop` and `down` write, see `supervisor`.
_STOPPED = 'reason=stopped\n'
# How long `down` waits for what is being deleted or cannot be yet.
_DOWN_SECONDS = 900


def find_all(
  world: World, name: str | None = None
) -> list[tuple[str, resource.Resource]]:
  """Returns (API, resource) of everything that carries the label.

  Raises:
    commands.CommandError: if an API cannot be asked.
  """
  found, unknown = look(world, name)
  for error in unknown.values():
    raise error
  return found


def look(
  world: World, name: str | None = None
) -> tuple[list[tuple[str, resource.Resource]], dict[str, Exception]]:
  """Returns what `find_all` does of the APIs that answer, and {API: error}."""
  found, unknown = [], {}
  for api, route in watch.ROUTES.items():
    try:
      found += [(api, item) for item in route.find(world.run, name)]
    except commands.CommandError as error:
      if _is_disabled(str(error)):
        commands.warn(f'{api}: this API is not enabled, so nothing is rented')
      else:
        unknown[api] = error
  return found, unknown


def _is_disabled(message: str) -> bool:
  return 'SERVICE_DISABLED' in message or 'has not been used in' in message


def show_all(world: World) -> int:
  """Lists all resources; returns the exit code."""
  found = find_all(world)
  if not found:
    commands.say('nothing is rented.')
  for api, item in found:
    where = job.read(item.job).get('workdir', '')
    commands.say(
      f'{item.run:20} {item.state:13} {item.place:18} {api} {item.kind} '
      f'{item.name} {where} {item.message}'.rstrip()
    )
  return 0


def find_workdir(world: World, name: str, workdir: str | None) -> str:
  """Returns the working directory of a run.

  Raises:
    errors.UserError: if neither its resources nor this machine know it.
  """
  known = workdir or records.read(name).get('workdir')
  if known:
    return known
  for _, item in find_all(world, name):
    if found := job.read(item.job).get('workdir'):
      return found
  raise errors.UserError(
    f'{name} is not known on this machine and has no resources; give '
    '--workdir=gs://BUCKET/FOLDER.'
  )


def show_status(world: World, name: str, workdir: str | None) -> int:
  """Prints what exists for a run and how far it is."""
  for _, item in find_all(world, name):
    commands.say(f'{item.kind} {item.name}: {item.state} in {item.place}')
  workdir = find_workdir(world, name, workdir)
  status = terminal.read_status(world.run, workdir)
  if status is None:
    commands.say(f'{workdir} has no status yet')
    return 1
  age = terminal.format_time(max(0.0, world.now() - status['time']))
  commands.say(f'{terminal.describe_status(status)} ({age} ago)')
  return 0


def show_logs(
  world: World,
  name: str,
  workdir: str | None,
  worker: int | None,
  follow: bool,
) -> int:
  """Prints the logs of the hosts, and goes on with `follow`."""
  logs, pattern = (
    terminal.Follower(world.run),
    job.logs_url(find_workdir(world, name, workdir)),
  )
  logs.show(bucket.list_objects(world.run, [pattern]), worker)
  while follow:
    world.sleep(world.period)
    logs.show(bucket.list_objects(world.run, [pattern]), worker)
  return 0


def stop(world: World, name: str, workdir: str | None) -> int:
  """Asks the hosts to save a checkpoint and to delete themselves."""
  found = [item for _, item in find_all(world, name)]
  if not _write_end(world, name, workdir, found):
    raise errors.UserError(f'no launch of {name} is under way.')
  commands.say(
    f'{name} saves a checkpoint within two minutes, then its hosts delete '
    f'themselves. Check with "python launch/tpu.py ls".'
  )
  return 0


def _write_end(world, name, workdir, found) -> bool:
  """Writes that the launches under way end; returns whether there are any.

  Args:
    world: runs commands.
    name: the run.
    workdir: its working directory, if it was given.
    found: its resources.
  """
  launches = set()
  for item in found:
    fields = job.read(item.job)
    if 'workdir' in fields:
      launches.add((fields['workdir'], fields['job']))
  known = workdir or records.read(name).get('workdir')
  if known:
    stored, _ = ledger_file.load(world, known)
    if stored and not stored['reason'] and stored['name'] == name:
      launches.add((known, stored['job']))
  for folder, launch in launches:
    try:
      bucket.write(world.run, job.end_url(folder, launch), _STOPPED, '0')
    except bucket.Changed:
      pass  # it ends already
  return bool(launches)


def down(world: World, name: str | None, workdir: str | None) -> int:
  """Deletes everything of a run, or of all runs.

  Args:
    world: acts on the world.
    name: the run; None is all.
    workdir: its working directory, if this machine does not know it.

  Returns:
    0 if nothing is left, 1 if something is or an API does not say.
  """
  found, unknown = look(world, name)
  for run in {item.run for _, item in found} | ({name} if name else set()):
    own = [item for _, item in found if item.run == run]
    try:
      # So that no supervisor asks for more.
      _write_end(world, run, workdir, own)
    except commands.CommandError as error:
      commands.warn(
        f'{error}. A command that watches {run} may ask for more hosts: end it.'
      )
  begin, told = world.now(), set()
  while found and world.now() - begin < _DOWN_SECONDS:
    for api, route in watch.ROUTES.items():
      for item in watch.deletable([r for a, r in found if a == api]):
        commands.say(f'deleting {item.kind} {item.name} in {item.place}')
        world.run(route.delete(item))
    for _, item in found:
      if item.state == resource.PROVISIONING and item.name not in told:
        told.add(item.name)
        commands.say(f'{item.name} is being set up and cannot be deleted yet')
    world.sleep(world.period)
    seen, unknown = look(world, name)
    # What an API had that does not answer now is taken to be still there.
    found = seen + [(api, item) for api, item in found if api in unknown]
  return _tell_left(found, unknown)


def _tell_left(found, unknown) -> int:
  """Says what is left after `down`; returns the exit code."""
  if not found and not unknown:
    commands.say('nothing is left.')
    return 0
  for api, error in unknown.items():
    commands.warn(f'{api} could not be asked what is left: {error}')
  if found:
    commands.warn(f'STILL THERE, AND COSTING, at {time.strftime("%H:%M:%S")}:')
  for api, item in found:
    commands.warn(
      f'  {api} {item.kind} {item.name} in {item.place}: {item.state}'
    )
  commands.warn('run this command again until nothing is left.')
  return 1
