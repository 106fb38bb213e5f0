"""What a supervisor decides, as a table."""

import dataclasses

import pytest

from launch import resource, supervisor
from launch.supervisor import CREATE, DELETE, END, WAIT, Ledger, Limits, Seen

A, B = 'us-east5-b', 'europe-west4-b'
LIMITS = Limits((A, B), seconds=3600.0)
FULL = 'there is no more capacity'
ZERO = "Quota 'TPUS' exceeded. Limit: 0"


def make(state='absent', **fields):
  """Returns the ledger of a launch that saw `state` since second 1000."""
  start = {'job': 'j', 'started': 0.0, 'time': 1000.0, 'since': 1000.0}
  return Ledger(**{**start, 'state': state, 'attempts': 1, **fields})


def look(state, now=1030.0, **fields):
  zone = '' if state == 'absent' else A
  return Seen(**{'now': now, 'state': state, 'zone': zone, **fields})


@pytest.mark.parametrize(
  'before, state, action',
  [
    ('absent', 'absent', CREATE),
    ('absent', 'waiting', WAIT),
    ('waiting', 'provisioning', WAIT),
    ('provisioning', 'active', WAIT),
    ('active', 'active', WAIT),
    ('active', 'preempted', DELETE),
    ('preempted', 'deleting', WAIT),
    ('deleting', 'absent', CREATE),
    ('active', 'absent', CREATE),
    ('active', 'waiting', DELETE),  # a group that lost hosts
    ('waiting', 'failed', DELETE),
    ('absent', 'idle', DELETE),
  ],
)
def test_action_for_each_state(before, state, action):
  assert supervisor.decide(make(before), look(state), LIMITS)[1] == action


@pytest.mark.parametrize('reason', ['done', 'failed', 'crashed', 'stopped'])
@pytest.mark.parametrize(
  'state, action',
  [
    ('absent', END),
    ('waiting', DELETE),
    ('provisioning', WAIT),
    ('active', DELETE),
    ('preempted', DELETE),
    ('failed', DELETE),
    ('idle', DELETE),
    ('deleting', WAIT),
  ],
)
def test_nothing_is_created_once_there_is_a_reason_to_end(
  reason, state, action
):
  ledger, found = supervisor.decide(
    make('active'), look(state, ended=reason), LIMITS
  )
  assert (ledger.reason, found) == (reason, action)
  # Nor after the reason cannot be seen any more.
  assert supervisor.decide(ledger, look(state), LIMITS)[1] == action


def test_provisioning_is_never_deleted_however_long_it_takes():
  ledger = make('provisioning')
  for now in range(1000, 100_000, 1000):
    ledger, action = supervisor.decide(
      ledger, look('provisioning', now=now), LIMITS
    )
    assert action == WAIT


@pytest.mark.parametrize(
  'before, state, count',
  [
    ('active', 'preempted', 1),
    ('active', 'absent', 1),
    ('active', 'deleting', 1),
    ('preempted', 'deleting', 0),
    ('deleting', 'absent', 0),
    ('waiting', 'absent', 0),
  ],
)
def test_each_preemption_is_counted_once(before, state, count):
  ledger, _ = supervisor.decide(make(before), look(state), LIMITS)
  assert ledger.preemptions == count


def test_rent_is_counted_while_hosts_run_and_while_nobody_looks():
  ledger = make('provisioning')
  ledger, _ = supervisor.decide(ledger, look('active', now=1030.0), LIMITS)
  # The supervisor was dead for 10 minutes.
  ledger, _ = supervisor.decide(ledger, look('active', now=1630.0), LIMITS)
  ledger, _ = supervisor.decide(ledger, look('absent', now=1640.0), LIMITS)
  ledger, _ = supervisor.decide(ledger, look('waiting', now=9999.0), LIMITS)
  assert ledger.seconds == 640.0


def test_rent_ends_a_minute_after_the_last_word_if_nobody_looked():
  ledger, _ = supervisor.decide(
    make('active'), look('absent', now=99_000.0, heard=1300.0), LIMITS
  )
  assert ledger.seconds == 360.0


def test_rent_of_hosts_that_came_and_went_while_nobody_looked_is_counted():
  seen = look('preempted', now=99_000.0, heard=5000.0)
  ledger, _ = supervisor.decide(make('waiting'), seen, LIMITS)
  assert ledger.seconds == 4060.0 and ledger.reason == 'out of time'
  # The log of hosts that were counted already.
  seen = look('absent', now=99_000.0, heard=900.0)
  ledger, _ = supervisor.decide(make('waiting'), seen, LIMITS)
  assert ledger.seconds == 0.0


def test_out_of_time_ends_the_launch():
  ledger, action = supervisor.decide(
    make('active', seconds=3590.0), look('active'), LIMITS
  )
  assert (ledger.reason, action) == ('out of time', DELETE)


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
  ledger, action = supervisor.decide(ledger, look('waiting', 2801.0), LIMITS)
  assert (ledger.zone, action) == (1, DELETE)
  # A deletion that was not heard is repeated, and counts no further zone.
  ledger, action = supervisor.decide(ledger, look('waiting', 2830.0), LIMITS)
  assert (ledger.zone, action) == (1, DELETE)
  ledger, action = supervisor.decide(ledger, look('absent', 2860.0), LIMITS)
  assert (ledger.zone, action) == (1, CREATE)


def test_only_zone_is_waited_for():
  alone = dataclasses.replace(LIMITS, zones=(A,))
  _, action = supervisor.decide(make('waiting'), look('waiting', 9e9), alone)
  assert action == WAIT


@pytest.mark.parametrize('state', ['failed', 'absent'])
def test_structural_failure_is_not_tried_again(state):
  ledger, action = supervisor.decide(
    make('waiting'), look(state, message=ZERO), LIMITS
  )
  assert ledger.reason == supervisor.STRUCTURAL and ledger.detail == ZERO
  assert action == (DELETE if state == 'failed' else END)


def test_unknown_failure_is_tried_once_more():
  odd = look('absent', message='something odd')
  ledger, action = supervisor.decide(make(), odd, LIMITS)
  assert (ledger.reason, action) == ('', WAIT)
  ledger, action = supervisor.decide(ledger, look('absent'), LIMITS)
  assert action == CREATE
  ledger, action = supervisor.decide(ledger, odd, LIMITS)
  assert (ledger.reason, action) == (supervisor.GAVE_UP, END)


def test_failed_resource_is_blamed_once_while_it_is_deleted():
  ledger = make('waiting')
  for _ in range(3):
    ledger, action = supervisor.decide(
      ledger, look('failed', message=FULL), LIMITS
    )
    assert action == DELETE
  assert (ledger.zone, ledger.full) == (1, 1)


def test_busy_service_is_asked_again_later_but_not_for_ever():
  ledger, now = make(), 1000.0
  for _ in range(20):
    refused = look('absent', now, message='HTTP 503')
    ledger, action = supervisor.decide(ledger, refused, LIMITS)
    assert action == WAIT and ledger.not_before > now
    now = ledger.not_before
  refused = look('absent', now, message='HTTP 503')
  for _ in range(2):
    ledger, action = supervisor.decide(ledger, refused, LIMITS)
  assert (ledger.reason, action) == (supervisor.GAVE_UP, END)


def test_silent_hosts_are_replaced_once():
  ledger, action = supervisor.decide(
    make('active'), look('active', 2801.0), LIMITS
  )
  assert (ledger.reason, action) == ('', DELETE)
  heard = look('active', 2801.0, heard=2790.0)
  assert supervisor.decide(make('active'), heard, LIMITS)[1] == WAIT
  again = make('active', odd=1)
  ledger, action = supervisor.decide(again, look('active', 2801.0), LIMITS)
  assert (ledger.reason, action) == (supervisor.GAVE_UP, DELETE)


def test_request_that_expired_in_the_queue_goes_to_the_next_zone():
  ledger, action = supervisor.decide(
    make('waiting'), look(resource.PREEMPTED), LIMITS
  )
  assert (ledger.zone, ledger.preemptions, action) == (1, 0, DELETE)


@pytest.mark.parametrize(
  'state, now', [('waiting', 1030.0), ('active', 2801.0)]
)
def test_deletion_that_failed_is_repeated_until_nothing_is_left(state, now):
  # A group that lost hosts, and hosts that are silent.
  ledger, action = supervisor.decide(make('active'), look(state, now), LIMITS)
  first = ledger
  for step in range(1, 4):
    assert (ledger.reason, action) == ('', DELETE)
    assert (ledger.odd, ledger.preemptions) == (first.odd, first.preemptions)
    seen = look(state, now + 30.0 * step, heard=now)
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
  # What runs until then is paid for.
  assert ledger.seconds == first.seconds + 90.0
  ledger, action = supervisor.decide(ledger, look('deleting', 3000.0), LIMITS)
  assert action == WAIT
  ledger, action = supervisor.decide(ledger, look('absent', 3030.0), LIMITS)
  assert action == CREATE
  # The hosts that come next are left alone.
  for state in ('waiting', 'active'):
    ledger, action = supervisor.decide(ledger, look(state, 3060.0), LIMITS)
    assert action == WAIT


def test_deletion_of_silent_hosts_is_no_preemption():
  ledger, _ = supervisor.decide(make('active'), look('active', 2801.0), LIMITS)
  for state in ('deleting', 'absent'):
    ledger, _ = supervisor.decide(ledger, look(state, 2831.0), LIMITS)
  assert (ledger.preemptions, ledger.odd) == (0, 1)
