"""Watches a run from its first request to the last deletion."""

import dataclasses
import json
import os
import random
import secrets
import time
from collections.abc import Callable

from bert_jax import errors
from launch import (
  bucket,
  commands,
  compute,
  job,
  queued,
  resource,
  supervisor,
  terminal,
)
from launch import plan as plan_lib

ROUTES = {'queued': queued, 'compute': compute}
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.sh')
# What counts if several resources of a run exist: that which costs most.
_ORDER = (
  resource.ACTIVE,
  resource.PROVISIONING,
  resource.DELETING,
  resource.WAITING,
  resource.PREEMPTED,
  resource.FAILED,
  resource.IDLE,
)
_SAVE_SECONDS = 300  # between two writes of a ledger without news
_REASONS = (
  supervisor.DONE,
  supervisor.FAILED,
  supervisor.CRASHED,
  supervisor.STOPPED,
  supervisor.OUT_OF_TIME,
)


@dataclasses.dataclass
class World:
  """How a supervisor acts on the world; replaced by stand-ins in tests.

  Attributes:
    run: runs a command.
    now: returns seconds since 1970.
    sleep: waits for some seconds.
    period: seconds between two looks.
    writer: what tells this supervisor from others of the run.
  """

  run: commands.Execute = commands.execute
  now: Callable[[], float] = time.time
  sleep: Callable[[float], None] = time.sleep
  period: float = 30.0
  writer: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))


@dataclasses.dataclass(frozen=True)
class View:
  """Everything that one look has found.

  Attributes:
    seen: what the decision needs.
    resources: all resources of the run.
    objects: logs, status and end of the launch in the bucket.
  """

  seen: supervisor.Seen
  resources: list[resource.Resource]
  objects: list[bucket.Object]


def observe(world: World, plan: plan_lib.Plan, launch: str) -> View:
  """Looks at the run's resources and at what its hosts wrote.

  Args:
    world: runs commands.
    plan: the run.
    launch: the launch, see `job`.

  Raises:
    commands.CommandError: if something could not be looked at. What is not
      known must not be taken for what is not there.
  """
  found = ROUTES[plan.api].find(world.run, plan.name)
  end_url = job.end_url(plan.workdir, launch)
  status_url = job.status_url(plan.workdir)
  objects = bucket.list_objects(
    world.run, [job.logs_url(plan.workdir), end_url, status_url]
  )
  reason, detail = None, ''
  if any(item.url == end_url for item in objects):
    reason, detail = read_end(bucket.read(world.run, end_url) or '')
  heard = [item.time for item in objects if item.url.endswith('/host-0.log')]
  main = min(found, key=lambda r: _ORDER.index(r.state), default=None)
  seen = supervisor.Seen(
    now=world.now(),
    state=main.state if main else supervisor.ABSENT,
    zone=main.place if main else '',
    message=main.message if main else '',
    ended=reason,
    detail=detail,
    heard=heard[0] if heard else None,
  )
  return View(seen, found, objects)


def read_end(text: str) -> tuple[str, str]:
  """Returns (reason, detail) of what a host or a user wrote."""
  first, _, detail = text.partition('\n')
  reason = first.removeprefix('reason=').strip()
  if reason not in _REASONS:
    return supervisor.FAILED, f'unreadable: {text[:200]!r}'
  return reason, detail.strip()


def act(
  world: World,
  plan: plan_lib.Plan,
  ledger: supervisor.Ledger,
  action: str,
  found: list[resource.Resource],
  folder: str,
) -> str:
  """Does what was decided.

  Args:
    world: runs commands.
    plan: the run.
    ledger: what was done so far.
    action: from `supervisor.decide`.
    found: all resources of the run.
    folder: a local folder for files that commands read.

  Returns:
    Why a creation failed; '' if it did not.
  """
  if action == supervisor.DELETE:
    for item in deletable(found):
      result = world.run(ROUTES[plan.api].delete(item))
      if result.code:
        commands.warn(f'not deleted yet: {item.kind} {item.name}')
  if action != supervisor.CREATE:
    return ''
  zone = plan.zones[ledger.zone]
  seconds = plan.hours * 3600 - ledger.seconds
  route = ROUTES[plan.api]
  text = job.render(
    plan, ledger.job, ledger.sha256, seconds, route.delete_self(plan, zone)
  )
  # One per run: several launchers may work at a time.
  path = os.path.join(folder, f'{plan.name}.job')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
  for argv in route.create(plan, zone, WORKER, path, seconds):
    result = world.run(argv)
    if result.code:
      return result.err.strip() or f'exit code {result.code}'
  return ''


def deletable(found: list[resource.Resource]) -> list[resource.Resource]:
  """Returns what may be deleted now.

  Templates and policies come after the groups that use them.
  """
  fixed = (resource.PROVISIONING, resource.DELETING)
  hosts = [r for r in found if r.state != resource.IDLE]
  idle = [r for r in found if r.state == resource.IDLE]
  return [r for r in hosts if r.state not in fixed] if hosts else idle


def load(world: World, workdir: str) -> tuple[dict | None, str]:
  """Returns (what `save` wrote, its generation); (None, '0') before that."""
  url = job.ledger_url(workdir)
  # In this order, a change in between is noticed when it is written.
  generation = bucket.get_generation(world.run, url)
  if generation == '0':
    return None, generation
  text = bucket.read(world.run, url)
  return (json.loads(text) if text else None), generation


def save(
  world: World,
  plan: plan_lib.Plan,
  ledger: supervisor.Ledger,
  generation: str,
) -> str:
  """Writes the ledger and returns its new generation.

  Raises:
    errors.UserError: if another supervisor has written since.
    commands.CommandError: if it could not be written.
  """
  url = job.ledger_url(plan.workdir)
  fields = {'name': plan.name, 'project': plan.project}
  fields |= {'writer': world.writer}
  text = json.dumps({**fields, **dataclasses.asdict(ledger)}, indent=2) + '\n'
  for _ in range(2):
    try:
      return bucket.write(world.run, url, text, generation)
    except bucket.Changed:
      stored, generation = load(world, plan.workdir)
      if not stored or stored.get('writer') != world.writer:
        break
      # It was this supervisor, and the answer to that write was lost.
  raise errors.UserError(
    f'{url} was written by another process: it watches this run now.'
  )


def start_ledger(
  world: World,
  plan: plan_lib.Plan,
  found: list[resource.Resource],
  sha256: str,
) -> tuple[supervisor.Ledger, str]:
  """Continues the launch that is under way, or begins one.

  Args:
    world: runs commands.
    plan: the run.
    found: all resources of the run; the launch of those that live goes on.
    sha256: that of the archive of the code, for a new launch.

  Returns:
    (the ledger, the generation of its object).

  Raises:
    errors.UserError: if the resources belong to another run or are others than
      the plan's, or if this run is in another project.
  """
  now = world.now()
  stored, generation = load(world, plan.workdir)
  jobs = [job.read(r.job) for r in found if r.job]
  for other in jobs:
    if other.get('workdir') != plan.workdir:
      raise errors.UserError(
        f'--name={plan.name} is in use, with --workdir={other.get("workdir")}; '
        f'choose another name, or end that run with "down {plan.name}".'
      )
    _check_hosts(plan, other)
  if stored and not stored['reason'] and stored['name'] == plan.name:
    end = bucket.read(world.run, job.end_url(plan.workdir, stored['job']))
    project = stored.get('project', plan.project)
    if project != plan.project and end is None:
      raise errors.UserError(
        f'{plan.name} is in project {project}, and gcloud uses {plan.project}; '
        f'go on there with CLOUDSDK_CORE_PROJECT={project}, or end it first: '
        f'python launch/tpu.py stop {plan.name}'
      )
    if end is None or found:
      own = {field.name for field in dataclasses.fields(supervisor.Ledger)}
      kept = {key: value for key, value in stored.items() if key in own}
      return _with_zone(supervisor.Ledger(**kept), plan, found), generation
  if jobs:  # the ledger was lost, or is that of an earlier launch
    name, sha256 = jobs[0]['job'], jobs[0]['sha256']
  else:
    name = time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))
    name += f'-{random.randrange(10**4):04}'
  fresh = supervisor.Ledger(
    job=name, started=now, time=now, since=now, sha256=sha256
  )
  return _with_zone(fresh, plan, found), generation


def _check_hosts(plan, other: dict[str, str]):
  """Refuses hosts, given by their job, whose price and number are others."""
  topology = plan.topology
  for key, value in ('topology', topology.name), ('slices', topology.slices):
    if other.get(key, str(value)) != str(value):
      raise errors.UserError(
        f'{plan.name} has hosts of --{key}={other[key]}; give that, or end them '
        f'first: python launch/tpu.py stop {plan.name}'
      )


def _with_zone(ledger, plan, found) -> supervisor.Ledger:
  """Returns the ledger with the zone in which the run's hosts are."""
  zones = [r.place for r in found if r.place in plan.zones]
  zone = plan.zones.index(zones[0]) if zones else ledger.zone
  return dataclasses.replace(ledger, zone=zone % len(plan.zones))


def watch(
  world: World,
  plan: plan_lib.Plan,
  limits: supervisor.Limits,
  ledger: supervisor.Ledger,
  generation: str,
  folder: str,
) -> supervisor.Ledger:
  """Keeps a run going until it ends and nothing of it is left.

  Args:
    world: acts on the world.
    plan: the run.
    limits: what the launch may do.
    ledger: from `start_ledger`.
    generation: the generation of its object.
    folder: a local folder for files that commands read.

  Returns:
    The last ledger; its `reason` says why the launch ended.

  Raises:
    errors.UserError: if another supervisor has taken over.
  """
  screen = terminal.Screen(world.run, plan)
  refused, saved = '', 0.0
  while True:
    before = ledger
    try:
      view = observe(world, plan, ledger.job)
      seen = view.seen
      if refused and seen.state in (supervisor.ABSENT, resource.FAILED):
        # Of a group that exists without its hosts, the API does not say why.
        seen = dataclasses.replace(seen, message=refused)
      ledger, action = supervisor.decide(ledger, seen, limits)
      news = action != supervisor.WAIT or ledger.state != before.state
      if news or ledger.time - saved > _SAVE_SECONDS:
        # Before the act: what could not be written down is not done.
        generation = save(world, plan, ledger, generation)
        saved = ledger.time
    except commands.CommandError as error:
      ledger = before
      commands.warn(f'looking again in a moment: {error}')
      world.sleep(world.period)
      continue
    screen.show_change(before, ledger, seen, action)
    if seen.state not in (resource.IDLE, resource.DELETING):
      refused = ''  # it counts once, and not if the hosts came after all
    refused = (
      act(world, plan, ledger, action, view.resources, folder) or refused
    )
    screen.show_run(view.objects)
    if action == supervisor.END:
      return ledger
    world.sleep(world.period)
