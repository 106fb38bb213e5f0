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


ACTIONS = """
absent absent create, absent waiting wait, waiting provisioning wait,
provisioning active wait, active active wait, active preempted delete,
preempted deleting wait, deleting absent create, active absent create,
waiting failed delete"""


@pytest.mark.parametrize('words', ACTIONS.split(','))
def test_action_for_each_state(words):
  before, state, action = words.split()
  assert supervisor.decide(make(before), look(state), LIMITS)[1] == action


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


def test_full_zones_are_asked_for_months_with_growing_pauses():
  ledger, action, now = Ledger('j'), WAIT, 0.0
  for _ in range(5000):
    now = max(now + 30.0, ledger.not_before)
    seen = look('absent', now, message=FULL if action == CREATE else '')
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
  assert not ledger.reason and ledger.full == 2500


COUNTS = """
active preempted 1, active absent 1, active deleting 1, active failed 1,
preempted deleting 0, deleting absent 0, waiting absent 0"""


@pytest.mark.parametrize('words', COUNTS.split(','))
def test_each_preemption_is_counted_once(words):
  before, state, count = words.split()
  ledger, _ = supervisor.decide(make(before), look(state), LIMITS)
  assert ledger.preemptions == int(count)


def test_rent_is_counted_while_hosts_run_and_while_nobody_looks():
  ledger = make('provisioning')
  # The supervisor was dead for 10 minutes.
  for state, now in (('active', 1030.0), ('active', 1630.0)):
    ledger, _ = supervisor.decide(ledger, look(state, now=now), LIMITS)
  ledger, _ = supervisor.decide(ledger, look('absent', now=1640.0), LIMITS)
  ledger, _ = supervisor.decide(ledger, look('waiting', now=9999.0), LIMITS)
  assert ledger.seconds == 640.0


def test_rent_ends_a_minute_after_the_last_word_if_nobody_looked():
  seen = look('absent', now=99_000.0, heard=1300.0)
  assert supervisor.decide(make('active'), seen, LIMITS)[0].seconds == 360.0


def test_rent_of_hosts_that_came_and_went_while_nobody_looked_is_counted():
  seen = look('preempted', now=99_000.0, heard=5000.0)
  ledger, _ = supervisor.decide(make('waiting'), seen, LIMITS)
  assert ledger.seconds == 4060.0 and ledger.reason == 'out of time'
  # The log of hosts that were counted already.
  seen = look('absent', now=99_000.0, heard=900.0)
  assert supervisor.decide(make('waiting'), seen, LIMITS)[0].seconds == 0.0


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


def test_only_zone_is_waited_for():
  alone = LIMITS._replace(zones=(A,))
  seen = look('waiting', 9e9)
  assert supervisor.decide(make('waiting'), seen, alone)[1] == WAIT


@pytest.mark.parametrize('state', ['failed', 'absent'])
def test_structural_failure_is_not_tried_again(state):
  seen = look(state, message=ZERO)
  ledger, action = supervisor.decide(make('waiting'), seen, LIMITS)
  assert ledger.reason == supervisor.STRUCTURAL and ledger.detail == ZERO
  assert action == (DELETE if state == 'failed' else END)


def test_unknown_failure_is_tried_once_more():
  ledger, action = supervisor.decide(
    make(), look('absent', message='odd'), LIMITS
  )
  assert (ledger.reason, action) == ('', WAIT)
  later = look('absent', ledger.not_before)
  ledger, action = supervisor.decide(ledger, later, LIMITS)
  assert action == CREATE
  seen = look('absent', ledger.time, message='odd')
  ledger, action = supervisor.decide(ledger, seen, LIMITS)
  assert (ledger.reason, action) == (supervisor.GAVE_UP, END)


def test_failed_resource_is_blamed_once_while_it_is_deleted():
  ledger, seen = make('waiting'), look('failed', message=FULL)
  for _ in range(3):
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
    assert action == DELETE
  assert (ledger.zone, ledger.full) == (1, 1)


def test_busy_service_is_asked_again_later_but_not_for_ever():
  ledger, now = make(), 1000.0
  for n in range(22):
    refused = look('absent', now, message='HTTP 503')
    ledger, action = supervisor.decide(ledger, refused, LIMITS)
    assert n >= 20 or (action == WAIT and ledger.not_before > now)
    now = max(now, ledger.not_before)
  assert (ledger.reason, action) == (supervisor.GAVE_UP, END)


def test_request_that_expired_in_the_queue_goes_to_the_next_zone():
  seen = look('preempted')
  ledger, action = supervisor.decide(make('waiting'), seen, LIMITS)
  assert (ledger.zone, ledger.preemptions, action) == (1, 0, DELETE)


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
