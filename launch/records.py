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
from launch.plan import Plan, pack
from launch.supervisor import Ledger
from launch.world import Unknown, World, warn

_FIELDS = Ledger.__annotations__
_TYPES = _FIELDS | {k: (int, float) for k, v in _FIELDS.items() if v is float}
_TPU = 'python launch/tpu.py'


def parse(text: str, where: str, **types) -> dict[str, Any]:
  """Returns a JSON object that has these fields; {} and a warning otherwise."""
  try:
    # No number is so long that it cannot be printed.
    found = json.loads(text, parse_int=lambda digits: int(digits[:18]))
    if all(isinstance(found[key], kind) for key, kind in types.items()):
      return found
  except (ValueError, LookupError, TypeError, RecursionError):
    pass
  warn(f'{where} is damaged, and passed over.')
  return {}


def _locate() -> str:
  state = os.environ.get('XDG_STATE_HOME') or '~/.local/state'
  return os.path.join(os.path.expanduser(state), 'bert_jax', 'launch')


def folder() -> str:
  """Returns the local folder of the launcher, made if need be."""
  os.makedirs(_locate(), exist_ok=True)
  return _locate()


def write_note(world: World, plan: Plan):
  """Notes on this machine where a run is."""
  noted = dict(workdir=plan.workdir, project=world.project, zones=plan.zones)
  files.write_json(os.path.join(folder(), f'{plan.name}.json'), noted)


def read_note(name: str | None) -> dict[str, Any]:
  """Returns what `write_note` noted; {} if the run is not known here."""
  path = os.path.join(_locate(), f'{name}.json')
  try:
    text = pathlib.Path(path).read_text(errors='replace')
  except FileNotFoundError:
    return {}
  except OSError:
    text = ''
  return parse(text, path, workdir=str, project=str, zones=list)


def load(world: World, workdir: str) -> tuple[Ledger, bucket.Content]:
  """Returns (the ledger, its object); its `job` is '' if there is none sound."""
  url = f'{workdir}/launch/ledger.json'
  found = bucket.read(world, url)
  stored = parse(found.text, url, **_TYPES) if found.text is not None else {}
  if not stored:
    return Ledger(''), found
  return Ledger(**{key: stored[key] for key in _FIELDS}), found


def save(world: World, workdir: str, ledger: Ledger, generation: str) -> str:
  """Writes the ledger, unless somebody has; returns its generation."""
  url, text = (
    f'{workdir}/launch/ledger.json',
    json.dumps(ledger._asdict(), indent=2),
  )
  try:
    return bucket.write(world, url, f'{text}\n', generation)
  except bucket.Changed:
    raise Unknown(
      f'{url} changed: another command looks after this run'
    ) from None


def open_launch(
  world: World, plan: Plan, found: list[queued.Resource], sha256: str
) -> tuple[Ledger, str]:
  """Continues the launch that is under way, or begins one with the code sha256.

  Returns (the ledger, the generation of its object). What was found under the
  run's name must fit the plan; its launch goes on.
  """
  _check_hosts(plan, found)
  stored, (_, generation, now) = load(world, plan.workdir)
  if now is None:
    raise Unknown(f'{plan.workdir}: the answer does not tell the time')
  live = [item.launch for item in found]
  day = time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))
  ledger = Ledger(f'{day}-{secrets.token_hex(3)}', time=now, since=now)
  if found:  # the ledger may be lost, or that of an earlier launch
    zones = [item.zone for item in found]
    ledger = ledger._replace(job=live[0], unsettled=zones)
    sha256 = found[0].read('sha256') or sha256
  if not stored.job:
    ledger = ledger._replace(**_recover(world, plan, live, now))
  elif not stored.reason:
    url = f'{plan.workdir}/launch/{stored.job}/end'
    ended = bucket.read(world, url).text is not None
    if not ended:
      _check_owner(world, plan, stored)
    if stored.job in live or not (ended or live):
      ledger = stored
  zones = [item.zone for item in found if item.zone in plan.zones]
  zone = plan.zones.index(zones[0]) if zones else ledger.zone % len(plan.zones)
  ledger = ledger._replace(zone=zone, sha256=sha256, plan=pack(plan))
  return ledger._replace(project=world.project), generation


def _check_owner(world, plan, stored):
  """Refuses a working directory that another launch uses."""
  name, project = stored.plan['name'], stored.project
  if name != plan.name:
    raise errors.UserError(
      f'--workdir={plan.workdir} is in use by a launch named {name}; choose '
      f'another, or end it: {_TPU} stop {name} --workdir={plan.workdir}'
    )
  if project != world.project:
    raise errors.UserError(
      f'{name} is in project {project}, and gcloud uses {world.project}; go on '
      f'there with CLOUDSDK_CORE_PROJECT={project}, or end it: {_TPU} stop {name}'
    )


def _recover(world, plan, live, now) -> dict[str, Any]:
  """Returns fields of a ledger that is lost; none if the launch has ended.

  Hosts write when their time is up; what the limit allows beyond that was spent.
  """
  told = bucket.list_objects(world, f'{plan.workdir}/launch')
  told = [x for x in told if re.search(r'/deadline-\d+$', x.url)]
  told = [x for x in told if not live or x.url.split('/')[-2] in live]
  if not told:
    return {}
  newest = max(told, key=lambda item: item.time)
  folder, _, number = newest.url.rpartition('/deadline-')
  if bucket.read(world, f'{folder}/end').text is not None:
    return {}
  logs = bucket.list_objects(world, f'{plan.workdir}/logs')
  last = now if live else max(item.time for item in [newest, *logs])
  text = bucket.read(world, newest.url).text or ''
  limit = plan.hours * 3600
  left = int(text) - last if re.fullmatch(r'\d{1,12}\n?', text) else 0
  job = folder.rpartition('/')[2]
  spent = min(max(0.0, limit - left), limit)
  warn(f'{spent / 3600:,.2f} hours of rent are known by the hosts of {job}.')
  return {'job': job, 'attempts': int(number[:9]), 'seconds': spent}


def _check_hosts(plan, found):
  """Refuses hosts of another run, or of another price or number."""
  wanted = {'workdir': plan.workdir, 'topology': plan.topology.name}
  wanted['slices'] = str(plan.topology.slices)
  for item in found:
    for key, value in wanted.items():
      if item.read(key) != value:
        raise errors.UserError(
          f'--name={plan.name} is in use by hosts with --{key}={item.read(key)}; '
          f'give that, or another name, or end them: {_TPU} down {item.name}'
        )
