"""What a supervisor decides, as a table, and in simulated weeks."""

import re

import pytest

from launch import supervisor
from launch.supervisor import CREATE, DELETE, END, WAIT, Ledger, Seen

A, B = 'us-east5-b', 'europe-west4-b'
FULL = 'there is no more capacity'
ZERO = "Quota 'TPUS' exceeded. Limit: 0"


def make(state='absent', **fields):
  """Returns the ledger of a launch that saw `state` since second 1000."""
  start = {'job': 'j', 'time': 1000.0, 'since': 1000.0, 'asked': 900.0}
  return Ledger(**{**start, 'state': state, 'attempts': 1, **fields})


def look(state, now=1030.0, **fields):
  zone = '' if state == 'absent' else A
  return Seen(**{'now': now, 'state': state, 'zone': zone, **fields})


def decide(ledger, seen, zones=(A, B), limit=3600.0):
  return supervisor.decide(ledger, seen, zones, limit)


def simulate(live, zones=(A, B), looks=5000, **fields):
  """Looks every 30 s; returns the last ledger.

  `live` gives (state, message) of hosts that were asked for so long ago; what is
  seen has more fields.
  """
  ledger, asked, now = Ledger('j'), None, 0.0
  for _ in range(looks):
    now += 30.0
    state, text = ('absent', '') if asked is None else live(now - asked)
    seen = look(state, now, message=text, **fields)
    ledger, action = decide(ledger, seen, zones, 1e9)
    if action == END:
      break
    asked = now if action == CREATE else asked
    asked = None if action == DELETE else asked
  return ledger


@pytest.mark.parametrize('state', 'absent waiting provisioning active'.split())
@pytest.mark.parametrize('reason', ['done', 'failed', 'crashed', 'stopped'])
def test_nothing_is_created_once_there_is_a_reason_to_end(reason, state):
  action = {'absent': END, 'provisioning': WAIT}.get(state, DELETE)
  ledger, act = decide(make('active'), look(state, ended=reason))
  assert (ledger.reason, act) == (reason, action)
  # Nor after the reason cannot be seen any more.
  assert decide(ledger, look(state))[1] == action


# What was seen before; state, time, action and perhaps the last word of host 0 for
# each look; what the ledger says in the end.
STORIES = """
# What is provisioning cannot be deleted, however long it takes.
provisioning, provisioning 9e9 wait: seconds 0
# A queue that takes long is left for the next zone. A deletion that was not
# heard is repeated; hosts that came are kept.
waiting, waiting 2801 delete, waiting 2830 delete, absent 2860 create,
  waiting 2890 wait: zone 1, refusals 1
waiting, waiting 2801 delete, active 2860 wait, absent 2890 create: zone 0
waiting, absent 1030 create, active 1060 wait: zone 1, refusals 0
# An expired request, and one that failed, count once while they are deleted.
waiting, preempted 1030 delete, preempted 1040 delete: zone 1, refusals 1
waiting, failed 1030 delete, failed 1040 delete: zone 1, refusals 1
# Silent hosts go; what runs until then is paid for. The hosts that come next are
# left alone.
active, active 2801 delete, active 2891 delete, deleting 2891 wait,
  absent 3000 create, waiting 3060 wait, active 3060 wait:
  mute 1, preemptions 1, seconds 1891
# Rent: the supervisor was dead for 10 minutes.
provisioning, active 1030 wait, active 1630 wait: seconds 630
active, absent 1010 create, waiting 9e4 wait: seconds 10
# Nobody looked: it ends a minute after the last word, if it is known why.
active, preempted 9e4 delete 1300: seconds 360
active, absent 3000 create 1300: seconds 2000
# They came and went while nobody looked; or their log is an old one.
waiting, preempted 9e4 delete 5000: seconds 4060
waiting, absent 9e4 create 900: seconds 0"""
STORIES = re.sub('#.*\n', '', STORIES).replace('\n  ', ' ').splitlines()[1:]


@pytest.mark.parametrize('story', STORIES)
def test_what_is_done_and_counted_from_look_to_look(story):
  looks, _, wanted = story.partition(':')
  before, *looks = looks.split(', ')
  ledger = make(before)
  for state, now, action, *heard in map(str.split, looks):
    heard = float(heard[0]) if heard else None
    ledger, act = decide(ledger, look(state, float(now), heard=heard))
    assert act == action, (state, now)
  for key, number in map(str.split, wanted.split(',')):
    assert getattr(ledger, key) == float(number)
  assert ledger.reason == ('out of time' if ledger.seconds > 3600 else '')


# Hosts that boot, run for some minutes and are gone; and some that stay.
@pytest.mark.parametrize('seconds', [600, 1e9])
def test_hosts_that_say_nothing_are_rented_three_times(seconds):
  live = lambda age: ('active' if age < seconds else 'absent', '')  # noqa: E731
  # A log of an earlier launch is no word of these hosts.
  ledger = simulate(live, heard=-9.0)
  assert (ledger.reason, ledger.attempts) == (supervisor.GAVE_UP, 3)
  assert 'service account' in ledger.detail


def test_queue_of_twelve_hours_goes_on():
  def live(seconds):
    return ('failed', 'expired') if seconds > 6 * 3600 else ('waiting', '')

  # In a week; a zone that is the only one is waited for.
  ledger = simulate(live, (A,), looks=20_000)
  assert not ledger.reason and 20 < ledger.attempts < 30


def test_zones_are_tried_in_turn_then_after_a_pause():
  ledger, told = make(not_before=1000.0), []
  for text in (FULL, 'odd', 'HTTP 503', ''):
    now = ledger.not_before
    ledger.time = now
    supervisor.refuse(ledger, text, (A, B))
    told.append((ledger.zone, ledger.not_before - now))
    for early, action in ((1, WAIT), (0, CREATE)):
      seen = look('absent', ledger.not_before - early)
      assert decide(ledger, seen)[1] == action
  assert told == [(1, 0.0), (0, 60.0), (1, 0.0), (0, 120.0)]
  # Whatever it is, it may pass; pauses grow to half an hour.
  for _ in range(99):
    supervisor.refuse(ledger, 'odd', (A, B))
  assert not ledger.reason and ledger.not_before - ledger.time == 1800
  supervisor.refuse(ledger, ZERO, (A, B))
  assert (ledger.reason, ledger.detail) == (supervisor.STRUCTURAL, ZERO)


# Step before the launch, steps at each crash, and how often hosts are asked for.
CRASHES = ((0, [0], 1), (5, [5], 1), (5, [9, 9], 2), (0, [9, 20, 20], 3))


@pytest.mark.parametrize('state', ['active', 'absent'])
@pytest.mark.parametrize('first, steps, times', CRASHES)
def test_hosts_that_crash_are_replaced_after_a_step_forward(
  first, steps, times, state
):
  ledger, action = decide(Ledger('j'), look('absent', step=first))
  now = 1030.0
  for step in steps:
    assert action == CREATE
    more = {'step': step, 'heard': 2000.0}
    ledger, _ = decide(ledger, look('active', now, **more))
    more |= {'ended': supervisor.CRASHED, 'detail': 'host 3'}
    states = ['active', 'deleting', 'absent']
    for word in states[-1 if state == 'absent' else 0 :]:
      now += 99.0
      ledger, action = decide(ledger, look(word, now, **more))
  assert (ledger.attempts, ledger.preemptions) == (times, 0)
  assert (ledger.reason, ledger.detail) == (supervisor.CRASHED, 'host 3')
  assert action == END
