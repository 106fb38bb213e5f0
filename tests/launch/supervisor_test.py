"""What a supervisor decides, as a table, and in simulated weeks."""

import pytest

from launch import supervisor
from launch.supervisor import CREATE, DELETE, END, WAIT, Ledger, Limits, Seen

A, B = 'us-east5-b', 'europe-west4-b'
LIMITS = Limits((A, B), seconds=3600.0)
FULL = 'there is no more capacity'
ZERO = "Quota 'TPUS' exceeded. Limit: 0"


def make(state='absent', **fields):
  """Returns the ledger of a launch that saw `state` since second 1000."""
  start = {'job': 'j', 'time': 1000.0, 'since': 1000.0, 'asked': 900.0}
  return Ledger(**{**start, 'state': state, 'attempts': 1, **fields})


def look(state, now=1030.0, **fields):
  zone = '' if state == 'absent' else A
  return Seen(**{'now': now, 'state': state, 'zone': zone, **fields})


def simulate(live, limits, looks=5000, **fields):
  """Looks every 30 s; returns the last ledger.

  Args:
    live: gives (state, message) of hosts that were asked for so long ago.
    limits: what the launch may do.
    looks: how many.
    **fields: of what is seen.
  """
  ledger, asked, now = Ledger('j'), None, 0.0
  for _ in range(looks):
    now += 30.0
    state, text = ('absent', '') if asked is None else live(now - asked)
    seen = look(state, now, message=text, **fields)
    ledger, action = supervisor.decide(ledger, seen, limits)
    if action == END:
      break
    asked = now if action == CREATE else asked
    asked = None if action == DELETE else asked
  return ledger


# Before, now, action, preemptions that are counted.
STEPS = """
absent absent create 0, absent waiting wait 0, waiting provisioning wait 0,
provisioning active wait 0, active active wait 0, active preempted delete 1,
preempted deleting wait 0, deleting absent create 0, active absent create 1,
active deleting wait 1, active failed delete 1, waiting absent create 0,
waiting failed delete 0, waiting preempted delete 0"""


@pytest.mark.parametrize('words', STEPS.split(','))
def test_action_for_each_state_and_each_preemption_is_counted_once(words):
  before, state, action, count = words.split()
  ledger, found = supervisor.decide(make(before), look(state), LIMITS)
  assert (found, ledger.preemptions) == (action, int(count))


@pytest.mark.parametrize('state', 'absent waiting provisioning active'.split())
@pytest.mark.parametrize('reason', ['done', 'failed', 'crashed', 'stopped'])
def test_nothing_is_created_once_there_is_a_reason_to_end(reason, state):
  action = {'absent': END, 'provisioning': WAIT}.get(state, DELETE)
  seen = look(state, ended=reason)
  ledger, found = supervisor.decide(make('active'), seen, LIMITS)
  assert (ledger.reason, found) == (reason, action)
  # Nor after the reason cannot be seen any more.
  assert supervisor.decide(ledger, look(state), LIMITS)[1] == action


def test_provisioning_is_never_deleted_however_long_it_takes():
  ledger = make('provisioning')
  for now in range(1000, 100_000, 1000):
    seen = look('provisioning', now=now)
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
    assert action == WAIT


def _come_and_go(seconds):
  """Hosts that boot, run for some minutes and are gone."""
  return ('active' if seconds < 600 else 'absent'), ''


def _stay(seconds):
  return 'active', ''


@pytest.mark.parametrize('live', [_come_and_go, _stay])
# A log and a status of an earlier launch are no word of these hosts.
@pytest.mark.parametrize('before', [{}, {'heard': -9.0, 'step': 500}])
def test_hosts_that_say_nothing_are_rented_three_times_in_5000_looks(
  live, before
):
  ledger = simulate(live, LIMITS._replace(seconds=1e9), **before)
  assert (ledger.reason, ledger.attempts) == (supervisor.GAVE_UP, 3)
  assert 'service account' in ledger.detail


@pytest.mark.parametrize('word', ['heard', 'step'])
def test_preemptions_of_hosts_that_speak_or_step_are_no_reason_to_end(word):
  ledger = Ledger('j')
  for n in range(1, 100):
    state = ('absent', 'active')[n % 2 == 0]
    seen = look(state, n * 30.0, **{word: n})
    if word == 'heard':
      seen = seen._replace(heard=n * 30.0 - 1.0)
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
  assert action == CREATE and (ledger.mute, ledger.preemptions) == (0, 49)


@pytest.mark.parametrize(
  'text', ['', 'm', 'the request has expired', 'DEADLINE']
)
def test_queue_of_twelve_hours_goes_on(text):
  def live(seconds):
    return ('failed', text) if seconds > 6 * 3600 else ('waiting', '')

  ledger = simulate(live, Limits((A,), 3600.0), looks=20_000)  # a week
  assert not ledger.reason and 20 < ledger.attempts < 30


# What was seen before, (state, time, last word of host 0) then, and the rent.
RENTS = [
  # The supervisor was dead for 10 minutes.
  ('provisioning', [('active', 1030, None), ('active', 1630, None)], 630),
  ('active', [('absent', 1010, None), ('waiting', 9999, None)], 10),
  # Nobody looked: it ends a minute after the last word.
  ('active', [('absent', 99_000, 1300)], 360),
  # They came and went while nobody looked; or their log is an old one.
  ('waiting', [('preempted', 99_000, 5000)], 4060),
  ('waiting', [('absent', 99_000, 900)], 0),
]


@pytest.mark.parametrize('before, looks, seconds', RENTS)
def test_rent_is_counted_while_hosts_run_and_while_nobody_looks(
  before, looks, seconds
):
  ledger = make(before)
  for state, now, heard in looks:
    seen = look(state, now, heard=heard)
    ledger, _ = supervisor.decide(ledger, seen, LIMITS)
  assert ledger.seconds == seconds
  assert ledger.reason == ('out of time' if seconds > 3600 else '')


def test_full_zones_are_tried_in_turn_then_after_a_pause():
  ledger, now = make(), 1000.0
  zones, pauses = [], []
  for _ in range(4):
    ledger, action = supervisor.decide(ledger, look('absent', now), LIMITS)
    assert action == CREATE
    zones.append(ledger.zone)
    full = look('absent', now, message=FULL)
    ledger, action = supervisor.decide(ledger, full, LIMITS)
    assert action == WAIT
    pauses.append(ledger.not_before - now)
    now = ledger.not_before
  assert (zones, pauses) == ([0, 1, 0, 1], [0.0, 60.0, 0.0, 120.0])


def test_queue_that_takes_long_is_left_for_the_next_zone():
  ledger = make('waiting')
  # A deletion that was not heard is repeated, and counts no further zone.
  for now in (2801.0, 2830.0):
    ledger, action = supervisor.decide(ledger, look('waiting', now), LIMITS)
    assert (ledger.zone, action) == (1, DELETE)
  # Hosts that came after all are kept.
  assert supervisor.decide(ledger, look('active', 2860.0), LIMITS)[1] == WAIT
  ledger, action = supervisor.decide(ledger, look('absent', 2860.0), LIMITS)
  assert (ledger.zone, action) == (1, CREATE)


def test_only_zone_is_waited_for_and_an_expired_request_goes_to_the_next():
  alone = LIMITS._replace(zones=(A,))
  seen = look('waiting', 9e9)
  assert supervisor.decide(make('waiting'), seen, alone)[1] == WAIT
  ledger, _ = supervisor.decide(make('waiting'), look('preempted'), LIMITS)
  assert ledger.zone == 1


# Message of each failure, how often hosts are asked for, and the reason to end.
ENDS = [
  (ZERO, 1, supervisor.STRUCTURAL),
  ('odd', 2, supervisor.GAVE_UP),
  ('HTTP 503', 21, supervisor.GAVE_UP),
]


@pytest.mark.parametrize('where', ['resource', 'command'])
@pytest.mark.parametrize('message, times, reason', ENDS)
def test_failures_end_a_launch_after_some_tries(message, times, reason, where):
  ledger, now, asked, state = Ledger('j'), 0.0, False, 'absent'
  while not ledger.reason:
    # The request is refused, or what was asked for fails.
    text = message if asked else ''
    state = 'failed' if asked and where == 'resource' else 'absent'
    seen = look(state, now, message=text)
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
    assert ledger.reason or not text or ledger.not_before > now
    now, asked = now + 30.0, action == CREATE
  assert (ledger.attempts, ledger.reason) == (times, reason)
  assert ledger.detail == message
  assert action == (DELETE if state == 'failed' else END)


def test_failed_resource_is_blamed_once_while_it_is_deleted():
  ledger, seen = make('waiting'), look('failed', message=FULL)
  for _ in range(3):
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
    assert action == DELETE
  assert (ledger.zone, ledger.full) == (1, 1)


def test_deletion_that_failed_is_repeated_until_nothing_is_left():
  seen = look('active', 2801.0)
  ledger, action = supervisor.decide(make('active'), seen, LIMITS)
  first = ledger
  for step in range(1, 4):
    assert (ledger.reason, action, ledger.mute) == ('', DELETE, 1)
    seen = look('active', 2801.0 + 30.0 * step, heard=2801.0)
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
  # What runs until then is paid for.
  assert ledger.seconds == first.seconds + 90.0
  for state, wanted in (('deleting', WAIT), ('absent', CREATE)):
    ledger, action = supervisor.decide(ledger, look(state, 3000.0), LIMITS)
    assert action == wanted and ledger.preemptions == 0
  # The hosts that come next are left alone.
  for state in ('waiting', 'active'):
    ledger, action = supervisor.decide(ledger, look(state, 3060.0), LIMITS)
    assert action == WAIT
