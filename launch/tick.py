"""One look at a launch, and the step that it calls for; the ledger remembers all.

A look may fail; of two at a time, the second to write does nothing.
"""

import json
import re
import tempfile
import time

from bert_jax import errors
from launch import queued, supervisor
from launch.plan import Plan
from launch.supervisor import Ledger
from launch.world import Answer, Unknown, World, say, shorten, warn

AGAIN = 75  # exit code: the launch is under way, or could not be looked at


def load(world: World, workdir: str) -> tuple[Ledger, Answer]:
  """Returns (the ledger, its object); its `job` is '' if there is none sound."""
  stored = world.read(f'{workdir}/launch/ledger.json')
  if stored.text is not None:
    try:
      fields = json.loads(stored.text)
      if fields.keys() == Ledger.__annotations__.keys():
        return Ledger(**fields), stored
    except (ValueError, AttributeError, RecursionError):
      pass
    warn(f'{workdir}/launch/ledger.json is damaged, and passed over.')
  return Ledger(''), stored


def save(world: World, workdir: str, ledger: Ledger, generation: str) -> str:
  """Writes the ledger, unless somebody has; returns its generation."""
  data = json.dumps(vars(ledger)).encode()
  return world.write(f'{workdir}/launch/ledger.json', data, generation)


def watch(world: World, workdir: str, once: bool = False) -> int:
  """Takes looks until a launch has ended, or one; survives all that goes wrong.

  Returns 0 when done, 1 if it ended otherwise, AGAIN if it is under way.
  """
  shown = None if once else {}
  while True:
    code = AGAIN
    try:
      code = take(world, workdir, shown)
    except Exception as error:  # whatever it was, hosts may be running
      if once and isinstance(error, errors.UserError):
        raise
      warn(f'looking again in a moment: {error!r}')
    if once or code != AGAIN:
      return code
    world.sleep(world.period)


def take(world: World, workdir: str, shown: dict | None = None) -> int:
  """Takes a look and a step, see `watch`; `shown` is of `_show_logs`."""
  before, stored = load(world, workdir)
  if not before.job:
    raise errors.UserError(
      f'{workdir} has no sound ledger of a launch: see run.'
    )
  plan = Plan(**before.plan)
  world.project, zones = plan.project, plan.zones
  seen, resources, logs = _observe(world, plan, before)
  limit = plan.hours * 3600
  ledger, action = supervisor.decide(before, seen, zones, limit)
  # Before the act: what could not be written down is not done.
  generation = save(world, workdir, ledger, stored.generation)
  news = (action, seen.state) != (supervisor.WAIT, before.state)
  if news or seen.message or shown is None:
    line = time.strftime('%H:%M:%S ', time.localtime(seen.now))
    line += f'step {seen.step}, hosts: {seen.state} {seen.zone}'.rstrip()
    line += f' ({seen.message[:300]})' if seen.message else ''
    if action == supervisor.CREATE:
      place = zones[ledger.zone]
      line += f'; request {ledger.attempts}: asking for them in {place}'
    say(line + '; deleting them' * (action == supervisor.DELETE))
  if refused := _act(world, plan, ledger, action, resources):
    say(f'refused: {refused[:300]}')
    supervisor.refuse(ledger, refused, zones)
    save(world, workdir, ledger, generation)
  if shown is not None:
    _show_logs(world, logs, shown)
  if action != supervisor.END:
    return AGAIN
  hours = ledger.seconds / 3600
  say(f'ended     {": ".join(filter(None, [ledger.reason, ledger.detail]))}')
  say(f'requests  {ledger.attempts}, preemptions {ledger.preemptions}')
  say(f'rent      {hours:,.2f} hours{plan.price_of(hours)}')
  return 0 if ledger.reason == supervisor.DONE else 1


def _observe(world, plan, ledger):
  """Returns (what the decision needs, the launch's resources, logs).

  It is Unknown if something could not be looked at where there may be something
  of the launch: what is not known must not be taken for what is not there.
  """
  found, silent = queued.find(world)
  for zone, why in silent.items():
    if zone in ('-', *ledger.unsettled) or {*plan.zones} <= {*silent}:
      raise Unknown(f'{zone}: {why}')
  # Another launch may have the same name: it is not ours to touch.
  found = [item for item in found if item.launch == ledger.job]
  # Of several, that which costs most counts.
  found.sort(key=lambda item: queued.ORDER.index(item.state))
  states = [(x.state, x.zone, ' '.join(x.message.split())) for x in found]
  # After the state: hosts that are gone wrote their last word before this.
  logs = world.list_folder(f'{plan.workdir}/logs')
  heard = [at for url, _, at in logs if url.endswith('/host-0.log')]
  folder = f'{plan.workdir}/launch/{ledger.job}'
  status = world.read(f'{plan.workdir}/status.json').text or ''
  step = re.search(r'"step": *(\d{1,9})\b', status)  # as worker.sh reads it
  end = world.read(f'{folder}/end')
  if end.text is None:  # by hosts of this request, see worker.sh
    end = world.read(f'{folder}/crashed-{ledger.attempts}')
  reason, detail = None, ''
  if end.text is not None:  # what a host or a user wrote
    first, _, detail = end.text.partition('\n')
    reason = first.removeprefix('reason=').strip()
    if reason not in supervisor.WRITTEN:
      detail, reason = f'unreadable: {first[:200]!r}', supervisor.MISTAKEN
  seen = supervisor.Seen(
    *(end.now, *[*states, (supervisor.ABSENT, '', '')][0]),
    *(reason, detail.strip(), *(heard or [None])),
    *(int(step[1]) if step else 0, tuple(silent)),
  )
  return seen, found, logs


def _act(world, plan, ledger, action, resources) -> str:
  """Does what was decided; returns why a creation failed, or ''."""
  # Of two that were asked for, since an answer was lost, one is too many.
  first = 0 if action == supervisor.DELETE else 1
  for item in resources[first:]:
    if item.state not in queued.FIXED and queued.delete(world, item).code:
      warn(f'not deleted yet: {item.name} in {item.zone}')
  if action != supervisor.CREATE:
    return ''
  with tempfile.NamedTemporaryFile('w', encoding='utf-8') as file:
    argv, job = queued.prepare(world, plan, ledger, file.name)
    file.write(job)
    file.flush()
    result = world.run(argv)
  return shorten(result.err) if result.code else ''


def _show_logs(world, logs, shown):
  """Prints new lines of all hosts; `shown` is {URL: bytes that were printed}."""
  for url, size, _ in logs:
    host, known = re.search(r'-(\d+)\.log$', url), shown.get(url, 0)
    if not host or size <= known:
      continue
    answer = world.read(url, known)
    data = b'' if answer.text is None else answer.data
    # The rest of a line that is being written is printed with the next one.
    whole = data[: data.rfind(b'\n') + 1]
    shown[url] = known + len(whole)
    for line in whole.decode(errors='replace').split('\n')[:-1]:
      # Progress bars overwrite their line.
      say(f'[worker {host[1]}] {line.rpartition(chr(13))[2]}')
