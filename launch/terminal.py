"""What a launch shows: changes, the hosts' logs, progress, the bill."""

import json
import re
import time

from launch import bucket, commands, job, resource, supervisor
from launch import plan as plan_lib

_WORDS = {
  supervisor.ABSENT: 'nothing is rented',
  resource.WAITING: 'waiting for hosts',
  resource.PROVISIONING: 'hosts are being set up',
  resource.ACTIVE: 'hosts are running',
  resource.PREEMPTED: 'hosts were taken away',
  resource.FAILED: 'the request failed',
  resource.DELETING: 'hosts are being deleted',
  resource.IDLE: 'deleting what the hosts were made of',
}
_HOST = re.compile(r'host-(\d+)\.log$')


class Follower:
  """Prints what is new in the logs of hosts.

  Attributes:
    sizes: {URL: bytes already printed}.
  """

  def __init__(self, run: commands.Execute):
    self._run = run
    self.sizes: dict[str, int] = {}

  def show(self, objects: list[bucket.Object], worker: int | None = None):
    """Prints new lines of one host, or of all, behind `[worker N]`.

    Args:
      objects: those of the working directory, logs among them.
      worker: number of the host; None is all.

    Raises:
      commands.CommandError: if the logs cannot be read.
    """
    for item in objects:
      found, known = _HOST.search(item.url), self.sizes.get(item.url, 0)
      if not found or item.size <= known:
        continue
      number = int(found[1])
      if worker not in (None, number):
        continue
      text = bucket.read(self._run, item.url, known) or ''
      # The rest of a line that is being written is printed with the next one.
      whole = text[: text.rfind('\n') + 1]
      self.sizes[item.url] = known + len(whole.encode())
      for line in whole.split('\n')[:-1]:
        # Progress bars overwrite their line.
        commands.say(f'[worker {number}] {line.rpartition(chr(13))[2]}')


def read_status(run: commands.Execute, workdir: str) -> dict | None:
  """Returns what the run says about itself; None if it has not yet."""
  text = bucket.read(run, job.status_url(workdir))
  try:
    return json.loads(text) if text else None
  except ValueError:
    return None


def describe_status(status: dict) -> str:
  """Returns the run's own report as one line."""
  parts = [f'{status["state"]}: step {status["step"]:,}/{status["steps"]:,}']
  if status.get('phases', 1) > 1:
    parts.append(f'phase {status["phase"] + 1} of {status["phases"]}')
  if status.get('loss') is not None:
    parts.append(f'loss {status["loss"]:.4f}')
  if status.get('steps_per_second'):
    parts.append(f'{status["steps_per_second"]:.3g} steps/s')
  if status.get('seconds_left') is not None:
    parts.append(f'{format_time(status["seconds_left"])} left')
  if status.get('checkpoint') is not None:
    parts.append(f'checkpoint {status["checkpoint"]:,}')
  if status.get('message'):
    parts.append(status['message'])
  return ', '.join(parts)


def format_time(seconds: float) -> str:
  """Returns hours and minutes, or minutes and seconds."""
  minutes, rest = divmod(int(seconds), 60)
  if minutes < 60:
    return f'{minutes} min {rest} s'
  return f'{minutes // 60} h {minutes % 60} min'


def list_bill(plan: plan_lib.Plan, ledger: supervisor.Ledger) -> list[str]:
  """Returns what a launch cost, beside what preflight had said."""
  hours = ledger.seconds / 3600
  found = [
    f'ended     {ledger.reason}'
    + (f': {ledger.detail}' if ledger.detail else ''),
    f'requests  {ledger.attempts}, preemptions {ledger.preemptions}',
  ]
  bill = f'rent      {hours:,.2f} hours'
  if plan.usd_per_hour is not None:
    bill += f', ${hours * plan.usd_per_hour:,.2f}'
  if ledger.estimate:
    bill += (
      f' (preflight: {plan_lib.format_range(ledger.estimate["hours"])} hours'
    )
    if ledger.estimate.get('dollars'):
      bill += f', {plan_lib.format_range(ledger.estimate["dollars"], "$")}'
    bill += ')'
  return [*found, bill]


class Screen:
  """Shows a launch line by line."""

  def __init__(self, run: commands.Execute, plan: plan_lib.Plan):
    self._run, self._plan = run, plan
    self._logs = Follower(run)
    self._last = None

  def show_change(
    self,
    before: supervisor.Ledger,
    ledger: supervisor.Ledger,
    seen: supervisor.Seen,
    action: str,
  ):
    """Prints a line if something is different from before."""
    news = (
      seen.state != before.state
      or seen.message
      or action
      in (
        supervisor.CREATE,
        supervisor.DELETE,
        supervisor.END,
      )
    )
    if not news:
      return
    at = time.strftime('%H:%M:%S', time.localtime(seen.now))
    line = f'{at} {_WORDS[seen.state]}'
    if seen.zone:
      line += f' in {seen.zone}'
    if seen.message:
      line += f' ({" ".join(seen.message.split())[:300]})'
    if action == supervisor.CREATE:
      zone = self._plan.zones[ledger.zone]
      line += f'; request {ledger.attempts}: asking for them in {zone}'
    if action == supervisor.DELETE:
      line += '; deleting them'
    commands.say(line)

  def show_run(self, objects: list[bucket.Object]):
    """Prints new lines of the logs, and the run's progress if it changed."""
    url = job.status_url(self._plan.workdir)
    new = [item.generation for item in objects if item.url == url]
    try:
      self._logs.show(objects)
      if new in ([], self._last):
        return
      status = read_status(self._run, self._plan.workdir)
    except commands.CommandError as error:
      commands.warn(f'no logs for now: {error}')
      return
    self._last = new
    if status:
      commands.say(f'[run] {describe_status(status)}')
