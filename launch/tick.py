"""One look at a launch, and the one step that it calls for.

All that is remembered is in the ledger: a look may fail, or be the last for days,
and the next goes on. Two at a time do no harm: the second to write does nothing.
"""

import os
import sys

from launch import bucket, queued, records, supervisor, terminal
from launch.plan import Plan, unpack
from launch.world import Unknown, World, find_base, shorten, warn

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.sh')
AGAIN = 75  # exit code: the launch is under way, or could not be looked at
# What counts if several resources exist: that which costs most.
_ORDER = (queued.ACTIVE, queued.PROVISIONING, queued.DELETING, queued.WAITING)
_ORDER += (queued.PREEMPTED, queued.FAILED)


def observe(
  world: World, plan: Plan, ledger: supervisor.Ledger
) -> tuple[supervisor.Seen, list[queued.Resource], list[bucket.Object], dict]:
  """Returns (what the decision needs, our resources, hosts' logs, status).

  It is Unknown if something could not be looked at where there may be something
  of the launch: what is not known must not be taken for what is not there.
  """
  found, silent = queued.find(world, plan.zones)
  for zone, why in silent.items():
    if zone in ledger.unsettled or len(silent) == len(plan.zones):
      raise Unknown(f'{zone}: {why}')
  # Another launch may have the same name: it is not ours to touch.
  found = [item for item in found if item.launch == ledger.job]
  found.sort(key=lambda item: _ORDER.index(item.state))
  state = [(item.state, item.zone, item.message) for item in found[:1]]
  logs = bucket.list_objects(world, f'{plan.workdir}/logs')
  heard = [item.time for item in logs if item.url.endswith('/host-0.log')]
  status = terminal.read_status(world, plan.workdir)
  folder = f'{plan.workdir}/launch/{ledger.job}'
  end = bucket.read(world, f'{folder}/end')
  if end.text is None:  # by hosts of this request, see worker.sh
    end = bucket.read(world, f'{folder}/crashed-{ledger.attempts}')
  if end.now is None:
    raise Unknown(f'{plan.workdir}: the answer does not tell the time')
  seen = supervisor.Seen(
    end.now,
    *(state or [(supervisor.ABSENT, '', ledger.refused)])[0],
    *(read_end(end.text) if end.text is not None else (None, '')),
    heard[0] if heard else None,
    status.get('step', 0),
    tuple(silent),
  )
  return seen, found, logs, status


def read_end(text: str) -> tuple[str, str]:
  """Returns (reason, detail) of what a host or a user wrote."""
  first, _, detail = text.partition('\n')
  reason = first.removeprefix('reason=').strip()
  if reason not in supervisor.WRITTEN:
    return supervisor.FAILED, f'unreadable: {text[:200]!r}'
  return reason, detail.strip()


def prepare_request(
  world: World, plan: Plan, ledger: supervisor.Ledger
) -> tuple[list[str], str]:
  """Returns the command that asks for hosts, and the path of their job."""
  zone, seconds = plan.zones[ledger.zone], plan.hours * 3600 - ledger.seconds
  name = queued.name_resource(plan, ledger.job)
  place = f'v2/projects/{world.project}/locations/{zone}/queuedResources/{name}'
  text = queued.render_job(
    *(world, plan, ledger.job, plan.topology, seconds),
    attempt=str(ledger.attempts),
    archive=f'launch/code-{ledger.sha256}.tar.gz',
    sha256=ledger.sha256,
    python='{}.{}'.format(*sys.version_info),
    delete=f'{find_base(world, "tpu")}{place}?force=true',
  )
  # One per run: several launchers may work at a time.
  path = os.path.join(records.folder(), f'{plan.name}.job')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
  return queued.create(plan, ledger.job, zone, (WORKER, path), seconds), path


def act(world: World, plan: Plan, ledger, action: str, found) -> str:
  """Does what was decided; returns why a creation failed, or ''."""
  # Of two that were asked for, since an answer was lost, one is too many.
  for item in found if action == supervisor.DELETE else found[1:]:
    if item.state not in queued.FIXED and queued.delete(world, item).code:
      warn(f'not deleted yet: {item.name} in {item.zone}')
  if action != supervisor.CREATE:
    return ''
  argv, _ = prepare_request(world, plan, ledger)
  result = world.run([*argv, f'--project={world.project}'])
  return shorten(result.err) if result.code else ''


def take(world: World, workdir: str, screen: terminal.Screen) -> int:
  """Takes a look and a step; returns 0 when done, 1 if it ended otherwise.

  AGAIN is returned as long as the launch is under way.
  """
  before, content = records.load(world, workdir)
  if not before.job:
    raise Unknown(f'{workdir}/launch has no sound ledger; "run" begins another')
  plan = unpack(before.plan)
  world.project = before.project
  limits = supervisor.Limits(plan.zones, plan.hours * 3600)
  seen, found, logs, status = observe(world, plan, before)
  fresh = before._replace(refused='')
  ledger, action = supervisor.decide(fresh, seen, limits)
  # Before the act: what could not be written down is not done.
  generation = records.save(world, workdir, ledger, content.generation)
  refused = act(world, plan, ledger, action, found)
  if refused:
    ledger = ledger._replace(refused=refused)
    records.save(world, workdir, ledger, generation)
  screen.show(plan, before.state, ledger, seen, action)
  screen.show_run(logs, status)
  if action != supervisor.END:
    return AGAIN
  screen.show_bill(plan, ledger)
  return 0 if ledger.reason == supervisor.DONE else 1


def take_all(world: World, workdir: str, screen: terminal.Screen) -> int:
  """Takes looks until a launch has ended; survives all that goes wrong."""
  code = AGAIN
  while code == AGAIN:
    try:
      code = take(world, workdir, screen)
    except Exception as error:  # whatever it was, hosts may be running
      text = error if isinstance(error, Unknown) else repr(error)
      warn(f'looking again in a moment: {text}')
    if code == AGAIN:
      world.sleep(world.period)
  return code
