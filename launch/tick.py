"""One look at a launch, and the one step that it calls for.

All that is remembered is in the ledger: a look may fail, or be the last for days,
and the next goes on. Two at a time do no harm: the second to write does nothing.
"""

import os
import re
import sys
import time

from bert_jax import errors
from launch import bucket, queued, records, supervisor
from launch.plan import Plan
from launch.world import Unknown, World, find_base, say, shorten, warn

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.sh')
AGAIN = 75  # exit code: the launch is under way, or could not be looked at
# What counts if several resources exist: that which costs most.
_ORDER = (queued.ACTIVE, queued.PROVISIONING, queued.DELETING, queued.WAITING)
_ORDER += (queued.PREEMPTED, queued.FAILED)


def take(world: World, workdir: str, shown: dict | None = None) -> int:
  """Takes a look and a step; returns 0 when done, 1 if it ended otherwise.

  AGAIN is returned as long as the launch is under way. New lines of logs are
  printed, if there is a record of what was `shown`.
  """
  before, content = records.load(world, workdir)
  if content.data is None:
    raise errors.UserError(f'no launch was started in {workdir}: see run.')
  if not before.job:
    raise Unknown(f'{workdir}/launch has no sound ledger; "run" begins another')
  plan = Plan(**before.plan)
  world.project, zones = before.project, plan.zones
  logs = bucket.list_objects(world, f'{workdir}/logs')
  seen, resources = _observe(world, plan, before, logs)
  limit = plan.hours * 3600
  ledger, action = supervisor.decide(before, seen, zones, limit)
  # Before the act: what could not be written down is not done.
  generation = records.save(world, workdir, ledger, content.generation)
  if action != supervisor.WAIT or seen.state != before.state or seen.message:
    line = time.strftime('%H:%M:%S ', time.localtime(seen.now))
    line += f'hosts: {seen.state}' + (f' in {seen.zone}' if seen.zone else '')
    line += f' ({seen.message[:300]})' if seen.message else ''
    if action == supervisor.CREATE:
      place = zones[ledger.zone]
      line += f'; request {ledger.attempts}: asking for them in {place}'
    say(line + '; deleting them' * (action == supervisor.DELETE))
  refused = _act(world, plan, ledger, action, resources)
  if refused:
    say(f'refused: {refused[:300]}')
    supervisor.refuse(ledger, refused, zones)
    records.save(world, workdir, ledger, generation)
  if shown is not None:
    show_logs(world, logs, shown)
  if action != supervisor.END:
    return AGAIN
  hours = ledger.seconds / 3600
  say(f'ended     {": ".join(filter(None, [ledger.reason, ledger.detail]))}')
  say(f'requests  {ledger.attempts}, preemptions {ledger.preemptions}')
  say(f'rent      {hours:,.2f} hours{plan.price_of(hours)}')
  return 0 if ledger.reason == supervisor.DONE else 1


def take_all(world: World, workdir: str) -> int:
  """Takes looks until a launch has ended; survives all that goes wrong."""
  code, shown = AGAIN, {}
  while code == AGAIN:
    try:
      code = take(world, workdir, shown)
    except Exception as error:  # whatever it was, hosts may be running
      warn(f'looking again in a moment: {error!r}')
    if code == AGAIN:
      world.sleep(world.period)
  return code


def _observe(world, plan, ledger, logs):
  """Returns (what the decision needs, the launch's resources).

  It is Unknown if something could not be looked at where there may be something
  of the launch: what is not known must not be taken for what is not there.
  """
  resources, silent = queued.find(world, plan.zones)
  for zone, why in silent.items():
    if zone in ledger.unsettled or len(silent) == len(plan.zones):
      raise Unknown(f'{zone}: {why}')
  # Another launch may have the same name: it is not ours to touch.
  resources = [item for item in resources if item.launch == ledger.job]
  resources.sort(key=lambda item: _ORDER.index(item.state))
  state = [(x.state, x.zone, ' '.join(x.message.split())) for x in resources]
  heard = [item.time for item in logs if item.url.endswith('/host-0.log')]
  folder = f'{plan.workdir}/launch/{ledger.job}'
  end = bucket.read(world, f'{folder}/end')
  if end.text is None:  # by hosts of this request, see worker.sh
    end = bucket.read(world, f'{folder}/crashed-{ledger.attempts}')
  if end.now is None:
    raise Unknown(f'{plan.workdir}: the answer does not tell the time')
  reason, detail = None, ''
  if end.text is not None:  # what a host or a user wrote
    first, _, detail = end.text.partition('\n')
    reason = first.removeprefix('reason=').strip()
    if reason not in supervisor.WRITTEN:
      detail, reason = f'unreadable: {first[:200]!r}', supervisor.MISTAKEN
  seen = supervisor.Seen(
    *(end.now, *(state or [(supervisor.ABSENT, '', '')])[0]),
    *(reason, detail.strip(), heard[0] if heard else None),
    *(_read_step(world, plan.workdir), tuple(silent)),
  )
  return seen, resources


def _act(world, plan, ledger, action, resources) -> str:
  """Does what was decided; returns why a creation failed, or ''."""
  # Of two that were asked for, since an answer was lost, one is too many.
  first = 0 if action == supervisor.DELETE else 1
  for item in resources[first:]:
    if item.state not in queued.FIXED and queued.delete(world, item).code:
      warn(f'not deleted yet: {item.name} in {item.zone}')
  if action != supervisor.CREATE:
    return ''
  argv, _ = prepare_request(world, plan, ledger)
  result = world.run([*argv, f'--project={world.project}'])
  return shorten(result.err) if result.code else ''


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
  os.makedirs(records.folder(), exist_ok=True)
  # One per run: several launchers may work at a time.
  path = os.path.join(records.folder(), f'{plan.name}.job')
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
  return queued.create(plan, ledger.job, zone, (WORKER, path), seconds), path


def _read_step(world, workdir) -> int:
  """Returns the step that the run says it has reached."""
  url = f'{workdir}/status.json'
  text = bucket.read(world, url).text
  return records.parse(text or '{"step": 0}', url, step=int).get('step', 0)


def show_logs(world: World, logs: list[bucket.Object], shown, worker=None):
  """Prints new lines of one host, or of all, behind `[worker N]`.

  `shown` is {URL: bytes that were printed}.
  """
  for url, size, _ in logs:
    host = re.search(r'-(\d+)\.log$', url)
    if not host or worker not in (None, int(host[1])):
      continue
    known = shown.get(url, 0)
    data = size > known and bucket.read(world, url, known).data or b''
    # The rest of a line that is being written is printed with the next one.
    whole = data[: data.rfind(b'\n') + 1]
    shown[url] = known + len(whole)
    for line in whole.decode(errors='replace').split('\n')[:-1]:
      # Progress bars overwrite their line.
      say(f'[worker {host[1]}] {line.rpartition(chr(13))[2]}')
