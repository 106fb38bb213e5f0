"""Decides what to do next: a pure function of what was done and what is seen.

  decide(ledger, seen, limits) -> (ledger, action)

Three rules hold in every state: nothing is created while anything of the run
exists, nothing is deleted while it is provisioning (the API cannot), and once
there is a reason to end, nothing is created any more.
"""

import dataclasses

from launch import failures, resource

ABSENT = 'absent'  # besides the states in `resource`
# Actions.
WAIT, CREATE, DELETE, END = 'wait', 'create', 'delete', 'end'
# Reasons to end; the first five are written by hosts or by a command.
DONE, FAILED, CRASHED = 'done', 'failed', 'crashed'
STOPPED, OUT_OF_TIME = 'stopped', 'out of time'
STRUCTURAL, GAVE_UP = 'structural', 'gave up'

_MAX_PAUSE = 1800  # seconds between rounds through full zones
_HEARD_SECONDS = 60  # between two uploads of host 0's log
_MAX_BUSY = 20  # refusals of a busy service in a row


@dataclasses.dataclass(frozen=True)
class Limits:
  """What a launch may do.

  Attributes:
    zones: zones to try.
    seconds: seconds of rent after which it ends.
    patience: seconds in one zone's queue before the next is tried.
    silence: seconds without a word from host 0 after which its slice is
      replaced.
    pause: seconds before full zones are tried again; doubles each time.
  """

  zones: tuple[str, ...]
  seconds: float
  patience: float = 1800.0
  silence: float = 1800.0
  pause: float = 60.0


@dataclasses.dataclass(frozen=True)
class Seen:
  """What is known at one moment.

  Attributes:
    now: seconds since 1970.
    state: state of the run's resource, or ABSENT.
    zone: where it is; '' if there is none.
    message: why it failed, or why it could not be created.
    ended: the reason to end that a host or a user wrote, if there is one.
    detail: what was written with it.
    heard: when host 0 last wrote its log; None if it never did.
  """

  now: float
  state: str
  zone: str = ''
  message: str = ''
  ended: str | None = None
  detail: str = ''
  heard: float | None = None


@dataclasses.dataclass(frozen=True)
class Ledger:
  """What a launch did so far; kept in the bucket.

  Attributes:
    job: names the launch.
    started: when it began, seconds since 1970.
    time: when `decide` was last called.
    state: the state that was seen then.
    since: when that state was first seen.
    zone: index of the zone to ask next, or asked last.
    attempts: how often hosts were asked for.
    preemptions: number of them that were taken away while they ran.
    seconds: seconds of rent.
    odd: failures in a row whose reason is not known.
    full: refusals in a row for lack of capacity.
    busy: refusals in a row by a busy service.
    not_before: time before which nothing is created.
    doomed: whether what there is must go: hosts that are silent, or the rest of
      a group. A deletion that failed is repeated, and nothing more is concluded.
    reason: why the launch ends; '' as long as it goes on.
    detail: more about that.
    sha256: that of the archive of the code.
    estimate: preflight's estimate of the run, if it was made.
  """

  job: str
  started: float
  time: float
  state: str = ABSENT
  since: float = 0.0
  zone: int = 0
  attempts: int = 0
  preemptions: int = 0
  seconds: float = 0.0
  odd: int = 0
  full: int = 0
  busy: int = 0
  not_before: float = 0.0
  doomed: bool = False
  reason: str = ''
  detail: str = ''
  sha256: str = ''
  estimate: dict | None = None


def decide(ledger: Ledger, seen: Seen, limits: Limits) -> tuple[Ledger, str]:
  """Returns the ledger with what was seen, and the action to take."""
  before, ledger = ledger, _account(ledger, seen)
  if not ledger.reason:
    ledger = _find_reason(ledger, seen, limits)
  if not ledger.reason and not before.doomed:
    ledger = _learn(before, ledger, seen, limits)
  if ledger.reason:
    return ledger, _end(seen.state)
  if seen.state == ABSENT:
    if seen.message or seen.now < ledger.not_before:
      return ledger, WAIT
    return dataclasses.replace(ledger, attempts=ledger.attempts + 1), CREATE
  if seen.state in (resource.PROVISIONING, resource.DELETING):
    return ledger, WAIT
  if seen.state == resource.WAITING:
    doomed = ledger.doomed or before.state == resource.ACTIVE
    elsewhere = seen.zone != limits.zones[ledger.zone]
    ledger = dataclasses.replace(ledger, doomed=doomed)
    return ledger, DELETE if doomed or elsewhere else WAIT
  if seen.state == resource.ACTIVE:
    doomed = ledger.doomed or _is_silent(ledger, seen, limits)
    ledger = dataclasses.replace(ledger, doomed=doomed)
    return ledger, DELETE if doomed else WAIT
  return ledger, DELETE  # preempted, failed, or remains that cost nothing


def _end(state) -> str:
  """Returns the action for a launch that ends."""
  if state == ABSENT:
    return END
  return WAIT if state in (resource.PROVISIONING, resource.DELETING) else DELETE


def _account(ledger, seen) -> Ledger:
  """Adds the rent since the last call, also that while nobody looked."""
  seconds, end = ledger.seconds, seen.now
  if seen.state != resource.ACTIVE and seen.heard is not None:
    # They ended while nobody looked, at the latest a minute after that.
    end = min(end, max(ledger.time, seen.heard) + _HEARD_SECONDS)
  # If it ran at one end of the time between, or said something in it, it is
  # counted as all of it.
  unseen = seen.heard is not None and seen.heard > ledger.time
  rest = (
    ledger.doomed and seen.state == resource.WAITING
  )  # some hosts still run
  if unseen or rest or resource.ACTIVE in (ledger.state, seen.state):
    seconds += max(0.0, end - ledger.time)
  changed = seen.state != ledger.state
  return dataclasses.replace(
    ledger,
    time=seen.now,
    state=seen.state,
    since=seen.now if changed else ledger.since,
    seconds=seconds,
    doomed=ledger.doomed and seen.state != ABSENT,
  )


def _find_reason(ledger, seen, limits) -> Ledger:
  if seen.ended:
    return dataclasses.replace(ledger, reason=seen.ended, detail=seen.detail)
  if ledger.seconds >= limits.seconds:
    return dataclasses.replace(ledger, reason=OUT_OF_TIME)
  return ledger


def _learn(before, ledger, seen, limits) -> Ledger:
  """Counts what went wrong, and draws the conclusions."""
  entered = seen.state != before.state
  gone = (ABSENT, resource.IDLE, resource.WAITING, resource.PREEMPTED)
  if before.state == resource.ACTIVE and seen.state in (
    *gone,
    resource.DELETING,
  ):
    return dataclasses.replace(ledger, preemptions=ledger.preemptions + 1)
  if seen.state == resource.PREEMPTED and entered:
    return _try_next_zone(ledger, seen, limits)  # it never got to run
  if seen.state == resource.FAILED and entered:
    return _blame(ledger, seen, limits)
  if seen.state == ABSENT and seen.message:
    return _blame(ledger, seen, limits)
  if seen.state == resource.ACTIVE:
    if _is_silent(ledger, seen, limits):
      return _blame(ledger, seen, limits)
    heard = seen.heard is not None and seen.heard >= ledger.since
    return dataclasses.replace(
      ledger, full=0, busy=0, odd=0 if heard else ledger.odd
    )
  queued = seen.state == resource.WAITING and len(limits.zones) > 1
  if queued and seen.zone == limits.zones[ledger.zone]:
    if seen.now - ledger.since > limits.patience:
      return _try_next_zone(ledger, seen, limits)
  return ledger


def _is_silent(ledger, seen, limits) -> bool:
  """Returns whether host 0 has said nothing for too long."""
  last = max(ledger.since, seen.heard or 0.0)
  return seen.now - last > limits.silence


def _blame(ledger, seen, limits) -> Ledger:
  """Draws the conclusion from a failure's message."""
  message = seen.message or 'host 0 is silent'
  kind = failures.classify(message)
  if kind == failures.CAPACITY:
    return _try_next_zone(ledger, seen, limits)
  if kind == failures.STRUCTURAL:
    return dataclasses.replace(ledger, reason=STRUCTURAL, detail=message)
  if kind == failures.TRANSIENT and ledger.busy < _MAX_BUSY:
    wait = min(limits.pause * 2**ledger.busy / 4, _MAX_PAUSE)
    return dataclasses.replace(
      ledger, busy=ledger.busy + 1, not_before=seen.now + wait
    )
  if ledger.odd:  # an unknown reason is given one more chance
    return dataclasses.replace(ledger, reason=GAVE_UP, detail=message)
  return dataclasses.replace(ledger, odd=ledger.odd + 1)


def _try_next_zone(ledger, seen, limits) -> Ledger:
  full, zones = ledger.full + 1, len(limits.zones)
  rounds, rest = divmod(full, zones)
  wait = 0.0 if rest else min(limits.pause * 2 ** (rounds - 1), _MAX_PAUSE)
  return dataclasses.replace(
    ledger,
    zone=(ledger.zone + 1) % zones,
    full=full,
    not_before=seen.now + wait,
  )
