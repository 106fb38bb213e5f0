"""What a launch shows: changes, the hosts' logs, progress, the bill."""

import re
import time

from launch import bucket, records, supervisor
from launch.plan import Plan
from launch.world import Unknown, World, say, warn

# What is shown of a status besides its state and step.
_SHOWN = ('phase', 'loss', 'steps_per_second', 'seconds_left', 'checkpoint')


def read_status(world: World, workdir: str) -> dict:
  """Returns what the run says about itself; {} if it has said nothing sound."""
  url = f'{workdir}/status.json'
  text = bucket.read(world, url).text
  if text is None:
    return {}
  return records.parse(text, url, state=str, step=int, steps=int)


def describe_status(status: dict) -> str:
  """Returns one line on a run."""
  line = f'{status["state"]}: step {status["step"]:,}/{status["steps"]:,}'
  for name in _SHOWN:
    if type(status.get(name)) in (int, float):
      line += f', {name.replace("_", " ")} {status[name]:,.5g}'
  return f'{line}, {status["message"]}' if status.get('message') else line


class Screen:
  """Shows what is new of a launch, line by line."""

  def __init__(self, world: World, follows: bool = True):
    self._world, self._follows, self._last = world, follows, ''
    self._sizes: dict[str, int] = {}  # bytes of logs already printed

  def show(self, plan: Plan, before: str, ledger, seen, action: str):
    """Prints a line if something is different from before, when `before` was."""
    if action == supervisor.WAIT and seen.state == before and not seen.message:
      return
    line = time.strftime('%H:%M:%S ', time.localtime(seen.now))
    line += f'hosts: {seen.state}' + (f' in {seen.zone}' if seen.zone else '')
    if seen.message:
      line += f' ({" ".join(seen.message.split())[:300]})'
    if action == supervisor.CREATE:
      zone = plan.zones[ledger.zone]
      line += f'; request {ledger.attempts}: asking for them in {zone}'
    say(line + '; deleting them' * (action == supervisor.DELETE))

  def show_run(self, logs: list[bucket.Object], status: dict):
    """Prints new lines of the logs, and the run's progress if it changed."""
    try:
      self.show_logs(logs if self._follows else [])
    except Unknown as error:
      warn(f'no logs for now: {error}')
    line = f'[run] {describe_status(status)}' if status else ''
    if line and line != self._last:
      say(line)
    self._last = line

  def show_logs(self, logs: list[bucket.Object], worker: int | None = None):
    """Prints new lines of one host, or of all, behind `[worker N]`."""
    for url, size, _ in logs:
      found, known = re.search(r'-(\d+)\.log$', url), self._sizes.get(url, 0)
      if not found or size <= known or worker not in (None, int(found[1])):
        continue
      data = bucket.read(self._world, url, known).data or b''
      # The rest of a line that is being written is printed with the next one.
      whole = data[: data.rfind(b'\n') + 1]
      self._sizes[url] = known + len(whole)
      for line in whole.decode(errors='replace').split('\n')[:-1]:
        # Progress bars overwrite their line.
        say(f'[worker {found[1]}] {line.rpartition(chr(13))[2]}')

  def show_bill(self, plan: Plan, ledger: supervisor.Ledger):
    """Prints why a launch ended, and what it cost."""
    hours = ledger.seconds / 3600
    say(f'ended     {": ".join(filter(None, [ledger.reason, ledger.detail]))}')
    say(f'requests  {ledger.attempts}, preemptions {ledger.preemptions}')
    say(f'rent      {hours:,.2f} hours{plan.price_of(hours)}')
