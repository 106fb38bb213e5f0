"""Where a launch is written down: a ledger in the bucket, a note on this machine.

Neither is needed to end a launch: resources carry labels. What is damaged is
named and passed over.
"""

import json
import os
import pathlib
import re
import secrets
import time
from typing import Any

from bert_jax import errors
from bert_jax.runtime import files
from launch import bucket, queued
from launch.plan import Plan
from launch.supervisor import Ledger
from launch.world import Unknown, World, warn

_FIELDS = Ledger.__annotations__
_TYPES = _FIELDS | {k: (int, float) for k, v in _FIELDS.items() if v is float}
_TPU = 'python launch/tpu.py'


def parse(text: str, where: str, **types) -> dict[str, Any]:
  """Returns a JSON object that has these fields; {} and a warning otherwise."""
  try:
    fields = json.loads(text)
    if all(isinstance(fields[key], kind) for key, kind in types.items()):
      return fields
  except (ValueError, LookupError, TypeError, RecursionError):
    pass
  warn(f'{where} is damaged, and passed over.')
  return {}


def folder() -> str:
  """Returns the local folder of the launcher, which may not exist."""
  state = os.environ.get('XDG_STATE_HOME') or '~/.local/state'
  return os.path.join(os.path.expanduser(state), 'bert_jax', 'launch')


def write_note(world: World, plan: Plan):
  """Notes on this machine where a run is."""
  os.makedirs(folder(), exist_ok=True)
  note = {'workdir': plan.workdir, 'project': world.project}
  files.write_json(os.path.join(folder(), f'{plan.name}.json'), note)


def read_note(name: str | None) -> dict[str, Any]:
  """Returns what `write_note` noted; {} if the run is not known here."""
  path = os.path.join(folder(), f'{name}.json')
  try:
    text = pathlib.Path(path).read_text(errors='replace')
  except FileNotFoundError:
    return {}
  except OSError:
    text = ''
  return parse(text, path, workdir=str, project=str)


def load(world: World, workdir: str) -> tuple[Ledger, bucket.Content]:
  """Returns (the ledger, its object); its `job` is '' if there is none sound."""
  url = f'{workdir}/launch/ledger.json'
  content = bucket.read(world, url)
  fields = content.text is not None and parse(content.text, url, **_TYPES)
  known = {key: fields[key] for key in _FIELDS} if fields else {'job': ''}
  return Ledger(**known), content


def save(world: World, workdir: str, ledger: Ledger, generation: str) -> str:
  """Writes the ledger, unless somebody has; returns its generation."""
  url, text = f'{workdir}/launch/ledger.json', json.dumps(vars(ledger))
  try:
    return bucket.write(world, url, text, generation)
  except bucket.Changed:
    raise Unknown(f'another command looks after this run: see {url}') from None


def open_launch(
  world: World, plan: Plan, resources: list[queued.Resource], sha256: str
) -> tuple[Ledger, str]:
  """Continues the launch that is under way, or begins one with the code sha256.

  Returns (the ledger, the generation of its object). What was found under the
  run's name must fit the plan; its launch goes on.
  """
  _check_hosts(plan, resources)
  stored, (_, generation, now) = load(world, plan.workdir)
  if now is None:
    raise Unknown(f'{plan.workdir}: the answer does not tell the time')
  live = [item.launch for item in resources]
  day = time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))
  ledger = Ledger(f'{day}-{secrets.token_hex(3)}', time=now, since=now)
  if resources:  # the ledger may be lost, or that of an earlier launch
    zones = [item.zone for item in resources]
    ledger.job, ledger.unsettled = live[0], zones
    ledger.zone = plan.zones.index(zones[0])
    sha256 = resources[0].read('sha256') or sha256
  if not stored.job:
    _recover(world, plan, live, ledger)
  elif not stored.reason:
    url = f'{plan.workdir}/launch/{stored.job}/end'
    ended = bucket.read(world, url).data is not None
    owner = stored.plan['name'], stored.project
    if not ended and owner != (plan.name, world.project):
      raise errors.UserError(
        f'--workdir={plan.workdir} is in use by a launch named {owner[0]} in '
        f'project {owner[1]}; choose another, or end it: CLOUDSDK_CORE_PROJECT='
        f'{owner[1]} {_TPU} stop {owner[0]} --workdir={plan.workdir}'
      )
    if stored.job in live or not (ended or live):
      ledger, at = stored, ledger.zone if live else stored.zone
      ledger.zone = at % len(plan.zones)
  ledger.sha256, ledger.plan = sha256, vars(plan)
  ledger.project = world.project
  return ledger, generation


def _recover(world, plan, live, ledger):
  """Fills in what a lost ledger knew, unless its launch has ended.

  Hosts write when their time is up; what the limit allows beyond that was spent.
  """
  told = bucket.list_objects(world, f'{plan.workdir}/launch')
  told = [x for x in told if re.search(r'/deadline-\d+$', x.url)]
  told = [x for x in told if not live or x.url.split('/')[-2] in live]
  if not told:
    return
  newest = max(told, key=lambda item: item.time)
  place, _, number = newest.url.rpartition('/deadline-')
  if bucket.read(world, f'{place}/end').data is not None:
    return
  logs = bucket.list_objects(world, f'{plan.workdir}/logs')
  last = ledger.time if live else max(x.time for x in [newest, *logs])
  text = bucket.read(world, newest.url).text or ''
  limit = plan.hours * 3600
  left = int(text) - last if re.fullmatch(r'\d{1,12}\n?', text) else 0
  ledger.job, ledger.attempts = place.rpartition('/')[2], int(number[:9])
  ledger.seconds = min(max(0.0, limit - left), limit)
  hours = f'{ledger.seconds / 3600:,.2f} hours of rent'
  warn(f'{hours} are known by the hosts of {ledger.job}.')


def _check_hosts(plan, resources):
  """Refuses hosts of another run, or of another price or number."""
  wanted = {
    'workdir': plan.workdir,
    'topology': plan.slice,
    'slices': plan.slices,
  }
  for item in resources:
    for key, value in wanted.items():
      if item.read(key) != str(value):
        raise errors.UserError(
          f'--name={plan.name} is in use by hosts with --{key}={item.read(key)}; '
          f'give that, or another name, or end them: {_TPU} down {item.name}'
        )
