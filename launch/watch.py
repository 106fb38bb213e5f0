"""Watches a run from its first request to the last deletion."""

import dataclasses
import os

from launch import (
  bucket,
  commands,
  compute,
  job,
  ledger_file,
  queued,
  resource,
  supervisor,
  terminal,
)
from launch import plan as plan_lib
from launch.world import World

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
    ledger: from `ledger_file.open_launch`.
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
        generation = ledger_file.save(world, plan, ledger, generation)
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
