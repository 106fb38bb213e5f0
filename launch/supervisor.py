"""Decides what to do next: a pure function of what was done and what is seen.

In every state, nothing is created while anything of the launch exists, nothing
is deleted while it is provisioning (the API cannot), and once there is a reason
to end, nothing is created any more. All times are those of the bucket's clock.
"""

from typing import NamedTuple

from launch import failures, queued

ABSENT = 'absent'  # besides the states in `queued`
# Actions.
WAIT, CREATE, DELETE, END = 'wait', 'create', 'delete', 'end'
# Reasons to end that hosts or a command write; then the supervisor's own.
WRITTEN = ('done', 'failed', 'crashed', 'stopped', 'out of time')
DONE, FAILED, CRASHED, _, OUT_OF_TIME = WRITTEN
STRUCTURAL, GAVE_UP = 'structural', 'gave up'

_MAX_PAUSE = 1800  # seconds between rounds through full zones
_HEARD_SECONDS = 60  # between two uploads of host 0's log
_UNSEEN_SECONDS = 60  # until what was asked for is surely in the lists
_MAX_BUSY = 20  # refusals in a row that may pass
_MAX_MUTE = 3  # ends of hosts in a row that said nothing
_MUTE = 'hosts ended {} times without a log, a status or a new step. '
_MUTE += 'Can their service account write to the bucket, and do they reach it?'


class Limits(NamedTuple):
  """What a launch may do."""

  zones: tuple[str, ...]  # to try
  seconds: float  # of rent, after which it ends
  patience: float = 1800.0  # seconds in a zone's queue before the next is tried
  expiry: float = queued.VALID_HOURS * 3600.0  # of a request in a queue
  silence: float = 1800.0  # of host 0, after which its slice is replaced
  pause: float = 60.0  # before full zones are tried again; doubles each time


class Seen(NamedTuple):
  """What is known at one moment."""

  now: float  # seconds since 1970
  state: str  # of the launch's resource, or ABSENT
  zone: str = ''  # where it is
  message: str = ''  # why it failed, or why it could not be created
  ended: str | None = None  # the reason to end that a host or a user wrote
  detail: str = ''  # what was written with it
  heard: float | None = None  # when host 0 last wrote its log
  step: int = 0  # that the run has reached
  dark: tuple[str, ...] = ()  # zones that do not answer


class Ledger(NamedTuple):
  """What a launch did so far; kept in the bucket."""

  job: str  # names the launch
  time: float = 0.0  # when `decide` was last called
  state: str = ABSENT  # that was seen then
  since: float = 0.0  # when that state was first seen
  zone: int = 0  # index of the zone to ask next, or asked last
  attempts: int = 0  # how often hosts were asked for
  asked: float = 0.0  # when they were last asked for
  step: int = 0  # that the run had reached by then
  crash_step: int = 0  # hosts that crash beyond it are replaced
  # Names of zones that did not answer since hosts were asked for there.
  unsettled: list = []
  preemptions: int = 0  # of hosts that were taken away while they ran
  seconds: float = 0.0  # of rent
  mute: int = 0  # ends of hosts in a row that said nothing
  full: int = 0  # refusals in a row for lack of capacity
  busy: int = 0  # failures in a row that may pass
  not_before: float = 0.0  # when the next hosts may be asked for
  # What there is must go. A deletion that failed is repeated, and nothing more
  # is concluded.
  doomed: bool = False
  reason: str = ''  # why the launch ends
  detail: str = ''  # more about that
  sha256: str = ''  # of the archive of the code
  refused: str = ''  # why hosts could not be asked for at the last look
  project: str = ''  # Google Cloud's
  plan: dict = {}  # see plan.pack


def decide(ledger: Ledger, seen: Seen, limits: Limits) -> tuple[Ledger, str]:
  """Returns the ledger with what was seen, and the action to take."""
  before, ledger = ledger, _account(ledger, seen)
  # One of the hosts may be bad: after a step forward, others get a try.
  crashed = seen.ended == CRASHED and seen.step > ledger.crash_step
  if crashed:
    ledger = ledger._replace(doomed=seen.state != ABSENT)
  elif seen.ended and not ledger.reason:
    ledger = ledger._replace(reason=seen.ended, detail=seen.detail)
  if ledger.seconds >= limits.seconds and not ledger.reason:
    ledger = ledger._replace(reason=OUT_OF_TIME)
  if not (ledger.reason or before.doomed or crashed):
    ledger = _learn(before, ledger, seen, limits)
  for _ in limits.zones:
    if seen.state == ABSENT and limits.zones[ledger.zone] in seen.dark:
      ledger = ledger._replace(zone=(ledger.zone + 1) % len(limits.zones))
  action = _act(ledger, seen, limits)
  if action == DELETE and seen.state != queued.WAITING:
    ledger = ledger._replace(doomed=True)
  if action == CREATE:
    asked = ledger._replace(asked=seen.now, step=seen.step)
    if crashed or not ledger.attempts:
      asked = asked._replace(crash_step=seen.step)
    zones = {*ledger.unsettled, limits.zones[ledger.zone]}
    asked = asked._replace(unsettled=[*sorted(zones)])
    asked = asked._replace(not_before=seen.now + _UNSEEN_SECONDS)
    ledger = asked._replace(attempts=ledger.attempts + 1)
  return ledger, action


def _act(ledger, seen, limits) -> str:
  if seen.state == ABSENT:
    wait = seen.message or seen.now < ledger.not_before
    return END if ledger.reason else WAIT if wait else CREATE
  bad = ledger.reason or ledger.doomed
  if seen.state == queued.WAITING:
    bad = bad or seen.zone != limits.zones[ledger.zone]
  if seen.state == queued.ACTIVE:
    bad = bad or _is_silent(ledger, seen, limits)
  bad = bad or seen.state in (queued.PREEMPTED, queued.FAILED)
  return DELETE if bad and seen.state not in queued.FIXED else WAIT


def _account(ledger, seen) -> Ledger:
  """Adds the rent since the last call."""
  seconds, end = ledger.seconds, seen.now
  if seen.state != queued.ACTIVE and seen.heard is not None:
    # They ended between the two calls, at the latest a minute after that.
    end = min(end, max(ledger.time, seen.heard) + _HEARD_SECONDS)
  # If the slice was active at either call, or gave a sign of life between
  # them, all of the time counts.
  unseen = seen.heard is not None and seen.heard > ledger.time
  if unseen or queued.ACTIVE in (ledger.state, seen.state):
    seconds += max(0.0, end - ledger.time)
  changed = seen.state != ledger.state
  since = seen.now if changed else ledger.since
  doomed = ledger.doomed and seen.state != ABSENT
  ledger = ledger._replace(state=seen.state, since=since, doomed=doomed)
  unsettled = {*ledger.unsettled} & {*seen.dark, seen.zone}
  ledger = ledger._replace(unsettled=[*sorted(unsettled)])
  return ledger._replace(time=seen.now, seconds=seconds)


def _learn(before, ledger, seen, limits) -> Ledger:
  """Counts what went wrong, and draws the conclusions."""
  entered = seen.state != before.state
  gone = (ABSENT, queued.DELETING, queued.PREEMPTED)
  if before.state == queued.ACTIVE and seen.state in (*gone, queued.FAILED):
    taken = ledger._replace(preemptions=ledger.preemptions + 1)
    return _count_mute(taken, seen)
  if seen.state == queued.PREEMPTED and entered:
    return _try_next_zone(ledger, seen, limits)  # it never got to run
  if seen.state == queued.FAILED and entered:
    waited = before.state == queued.WAITING and seen.now - before.since
    if waited > 0.9 * limits.expiry:  # our own deadline
      return _try_next_zone(ledger, seen, limits)
    return _blame(ledger, seen, limits)
  if seen.state == ABSENT and seen.message:
    return _blame(ledger, seen, limits)
  if before.state == queued.PROVISIONING and seen.state in gone:
    return _count_mute(ledger, seen)  # they came and went between two calls
  if seen.state == queued.ACTIVE:
    if _is_silent(ledger, seen, limits):
      return _count_mute(ledger, seen)
    return ledger._replace(full=0, busy=0)
  waiting = seen.state == queued.WAITING and len(limits.zones) > 1
  if waiting and seen.zone == limits.zones[ledger.zone]:
    if seen.now - ledger.since > limits.patience:
      return _try_next_zone(ledger, seen, limits)
  return ledger


def _is_silent(ledger, seen, limits) -> bool:
  """Returns whether host 0 has said nothing for too long."""
  last = max(ledger.since, seen.heard or 0.0)
  return seen.now - last > limits.silence


def _count_mute(ledger, seen) -> Ledger:
  """Counts an end of hosts, unless they said something before it."""
  heard = seen.heard is not None and seen.heard >= ledger.asked
  mute = 0 if heard or seen.step > ledger.step else ledger.mute + 1
  ledger = ledger._replace(mute=mute)
  if mute < _MAX_MUTE:
    return ledger
  return ledger._replace(reason=GAVE_UP, detail=_MUTE.format(mute))


def _blame(ledger, seen, limits) -> Ledger:
  """Draws the conclusion from a failure's message."""
  message = seen.message or 'the request failed without a message'
  kind, detail = failures.judge(message)
  if kind == failures.CAPACITY:
    return _try_next_zone(ledger, seen, limits)
  if kind == failures.STRUCTURAL:
    return ledger._replace(reason=STRUCTURAL, detail=detail)
  if ledger.busy >= _MAX_BUSY:
    return ledger._replace(reason=GAVE_UP, detail=detail)
  wait = min(limits.pause * 2**ledger.busy / 4, _MAX_PAUSE)
  return ledger._replace(busy=ledger.busy + 1, not_before=seen.now + wait)


def _try_next_zone(ledger, seen, limits) -> Ledger:
  full, zones = ledger.full + 1, len(limits.zones)
  rounds, rest = divmod(full, zones)
  wait = 0 if rest else min(limits.pause * 2 ** min(rounds - 1, 9), _MAX_PAUSE)
  ledger = ledger._replace(zone=(ledger.zone + 1) % zones, full=full)
  return ledger._replace(not_before=seen.now + wait)
