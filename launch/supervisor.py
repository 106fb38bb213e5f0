"""Decides what to do next: a pure function of what was done and what is seen.

Nothing is created while anything of the launch exists or once there is a reason to
end; nothing is deleted while it is provisioning (the API cannot). All times are
those of the bucket's clock.
"""

import dataclasses
from typing import NamedTuple

from launch import queued

ABSENT = 'absent'  # besides the states in `queued`
# Of hosts that have not run yet.
_UNBORN = (ABSENT, queued.WAITING, queued.PROVISIONING)
# Actions.
WAIT, CREATE, DELETE, END = 'wait', 'create', 'delete', 'end'
# Reasons to end that hosts or a command write; then the supervisor's own.
WRITTEN = ('done', 'failed', 'crashed', 'stopped', 'out of time')
DONE, MISTAKEN, CRASHED, _, OUT_OF_TIME = WRITTEN
STRUCTURAL, GAVE_UP = 'structural', 'gave up'

# Seconds.
_PATIENCE = 1800  # in a zone's queue, before the next one is tried
_SILENCE = 1800  # of host 0, after which its slice is replaced
_PAUSE, _MAX_PAUSE = 60, 1800  # between rounds through zones; doubles each time
_HEARD = 60  # between two uploads of host 0's log
_UNSEEN = 60  # until what was asked for is surely in the lists
_MAX_MUTE = 3  # ends of hosts in a row that said nothing
_MUTE = 'hosts ended {} times without a log: may their service account write?'


class Seen(NamedTuple):
  """What is known at one moment."""

  now: float  # seconds since 1970
  state: str  # of the launch's resource, or ABSENT
  zone: str = ''  # where it is
  message: str = ''  # why it failed
  ended: str | None = None  # the reason to end that a host or a user wrote
  detail: str = ''  # what was written with it
  heard: float | None = None  # when host 0 last wrote its log
  step: int = 0  # that the run has reached
  dark: tuple[str, ...] = ()  # zones that do not answer


@dataclasses.dataclass
class Ledger:
  """What a launch did so far; kept in the bucket."""

  job: str  # names the launch
  time: float = 0.0  # when `decide` was last called
  state: str = ABSENT  # that was seen then
  since: float = 0.0  # when that state was first seen
  zone: int = 0  # index of the zone to ask next, or asked last
  attempts: int = 0  # how often hosts were asked for
  asked: float = 0.0  # when they were last asked for
  crash_step: int = 0  # hosts that crash beyond it are replaced
  # Names of zones that did not answer since hosts were asked for there.
  unsettled: list = dataclasses.field(default_factory=list)
  preemptions: int = 0  # of hosts that were taken away, or silent
  seconds: float = 0.0  # of rent
  mute: int = 0  # ends of hosts in a row that said nothing
  refusals: int = 0  # in a row, of hosts that were asked for
  not_before: float = 0.0  # when the next hosts may be asked for
  reason: str = ''  # why the launch ends
  detail: str = ''  # more about that
  sha256: str = ''  # of the archive of the code
  plan: dict = dataclasses.field(default_factory=dict)  # see plan.Plan


def decide(
  before: Ledger, seen: Seen, zones: tuple[str, ...], limit: float
) -> tuple[Ledger, str]:
  """Returns the ledger with what was seen, and the action; `limit` is in seconds."""
  ledger = dataclasses.replace(before)
  _account(ledger, seen)
  # One of the hosts may be bad: after a step forward, others get a try.
  crashed = seen.ended == CRASHED and seen.step > ledger.crash_step
  if seen.ended and not crashed and not ledger.reason:
    ledger.reason, ledger.detail = seen.ended, seen.detail
  if ledger.seconds >= limit and not ledger.reason:
    ledger.reason = OUT_OF_TIME
  if not (ledger.reason or crashed):
    _learn(before.state, ledger, seen, zones)
  for _ in zones:
    if seen.state == ABSENT and zones[ledger.zone] in seen.dark:
      ledger.zone = (ledger.zone + 1) % len(zones)
  action = _act(ledger, seen, zones, crashed)
  if action == CREATE:
    if crashed or not ledger.attempts:
      ledger.crash_step = seen.step
    ledger.unsettled = sorted({*ledger.unsettled, zones[ledger.zone]})
    ledger.asked, ledger.not_before = seen.now, seen.now + _UNSEEN
    ledger.attempts += 1
  return ledger, action


def _act(ledger, seen, zones, crashed) -> str:
  if seen.state == ABSENT:
    wait = seen.now < ledger.not_before
    return END if ledger.reason else WAIT if wait else CREATE
  ended = (queued.PREEMPTED, queued.FAILED)
  bad = ledger.reason or crashed or seen.state in ended
  age = seen.now - ledger.since
  if seen.state == queued.WAITING:
    bad = bad or (len(zones) > 1 and age > _PATIENCE)
  if seen.state == queued.ACTIVE:
    silent = seen.now - max(ledger.since, seen.heard or 0.0)
    bad = bad or silent > _SILENCE
  return DELETE if bad and seen.state not in queued.FIXED else WAIT


def _account(ledger, seen):
  """Adds the rent since the last call, and notes the state."""
  end = seen.now
  # Hosts that are gone without a reason may have been silent for long before.
  known = seen.ended or seen.state != ABSENT
  if known and seen.state != queued.ACTIVE and seen.heard is not None:
    # They ended at the latest a minute after their last word.
    end = min(end, max(ledger.time, seen.heard) + _HEARD)
  # All counts if it was active at either call, or gave a sign of life between.
  unseen = seen.heard is not None and seen.heard > ledger.time
  if unseen or queued.ACTIVE in (ledger.state, seen.state):
    ledger.seconds += max(0.0, end - ledger.time)
  if seen.state != ledger.state:
    ledger.state, ledger.since = seen.state, seen.now
  ledger.unsettled = sorted({*ledger.unsettled} & {*seen.dark, seen.zone})
  ledger.time = seen.now


def _learn(before: str, ledger, seen, zones):
  """Counts what went wrong since the state before, and draws the conclusions."""
  gone = (ABSENT, queued.DELETING, queued.PREEMPTED)
  if seen.state == queued.ACTIVE:
    ledger.refusals = 0
  elif before == queued.ACTIVE:
    ledger.preemptions += seen.state in (*gone, queued.FAILED)
    _count_mute(ledger, seen)
  elif before == queued.PROVISIONING and seen.state in gone[:2]:
    _count_mute(ledger, seen)  # they came and went between two calls
  elif seen.state == queued.FAILED and before != queued.FAILED:
    refuse(ledger, seen.message, zones)
  elif seen.state in gone and seen.state != before and before in _UNBORN:
    refuse(ledger, '', zones)


def _count_mute(ledger, seen):
  """Counts an end of hosts, unless they said something before it."""
  heard = seen.heard is not None and seen.heard >= ledger.asked
  ledger.mute = 0 if heard else ledger.mute + 1
  if ledger.mute >= _MAX_MUTE:
    ledger.reason, ledger.detail = GAVE_UP, _MUTE.format(ledger.mute)


def refuse(ledger: Ledger, message: str, zones: tuple[str, ...]):
  """Notes that hosts were not given, with what is told of it."""
  if advice := queued.find_structural(message):
    ledger.reason, ledger.detail = STRUCTURAL, advice
  ledger.zone = (ledger.zone + 1) % len(zones)
  ledger.refusals += 1
  rounds, rest = divmod(ledger.refusals, len(zones))
  wait = 0 if rest else min(_PAUSE * 2 ** min(rounds - 1, 9), _MAX_PAUSE)
  ledger.not_before = max(ledger.not_before, ledger.time + wait)
