"""What a supervisor decides, as a table, and in simulated weeks."""

import re

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

  `live` gives (state, message) of hosts that were asked for so long ago; what is
  seen has more fields.
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


# What was seen before; state, time, action and perhaps the last word of host 0 for
# each look; what the ledger says in the end.
STORIES = """
# What is provisioning cannot be deleted, however long it takes.
provisioning, provisioning 9e9 wait: seconds 0
# A queue that takes long is left for the next zone. A deletion that was not
# heard is repeated, and counts no further zone; hosts that came are kept.
waiting, waiting 2801 delete, waiting 2830 delete, active 2860 wait,
  absent 2890 create: zone 1
# An expired request, and one that failed, count once while they are deleted.
waiting, preempted 1030 delete, preempted 1040 delete: zone 1, full 1
waiting, failed 1030 delete, failed 1040 delete: zone 1, full 1
# Silent hosts go, also if a deletion fails and they speak again; what runs until
# then is paid for. The hosts that come next are left alone.
active, active 2801 delete, active 2891 delete 2801, deleting 2891 wait,
  absent 3000 create, waiting 3060 wait, active 3060 wait:
  mute 1, preemptions 0, seconds 1891
# Rent: the supervisor was dead for 10 minutes.
provisioning, active 1030 wait, active 1630 wait: seconds 630
active, absent 1010 create, waiting 9e4 wait: seconds 10
# Nobody looked: it ends a minute after the last word.
active, absent 9e4 create 1300: seconds 360
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
    text = FULL if state == 'failed' else ''
    heard = float(heard[0]) if heard else None
    seen = look(state, float(now), message=text, heard=heard)
    ledger, found = supervisor.decide(ledger, seen, LIMITS)
    assert found == action, (state, now)
  for key, number in map(str.split, wanted.split(',')):
    assert getattr(ledger, key) == float(number)
  assert ledger.reason == ('out of time' if ledger.seconds > 3600 else '')


# Hosts that boot, run for some minutes and are gone; and some that stay.
@pytest.mark.parametrize('seconds', [600, 1e9])
# A log and a status of an earlier launch are no word of these hosts.
@pytest.mark.parametrize('before', [{}, {'heard': -9.0, 'step': 500}])
def test_hosts_that_say_nothing_are_rented_three_times_in_5000_looks(
  seconds, before
):
  live = lambda age: ('active' if age < seconds else 'absent', '')  # noqa: E731
  ledger = simulate(live, LIMITS._replace(seconds=1e9), **before)
  assert (ledger.reason, ledger.attempts) == (supervisor.GAVE_UP, 3)
  assert 'service account' in ledger.detail


@pytest.mark.parametrize('word', ['heard', 'step'])
def test_preemptions_of_hosts_that_speak_or_step_are_no_reason_to_end(word):
  ledger = Ledger('j')
  for n in range(1, 100):
    seen = look(
      ('absent', 'active')[n % 2 == 0], n * 30.0, **{word: n * 30 - 1}
    )
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
  assert action == CREATE and (ledger.mute, ledger.preemptions) == (0, 49)


@pytest.mark.parametrize('text', ['', 'm', 'the request has expired'])
def test_queue_of_twelve_hours_goes_on(text):
  def live(seconds):
    return ('failed', text) if seconds > 6 * 3600 else ('waiting', '')

  # In a week; a zone that is the only one is waited for.
  ledger = simulate(live, Limits((A,), 3600.0), looks=20_000)
  assert not ledger.reason and 20 < ledger.attempts < 30


def test_full_zones_are_tried_in_turn_then_after_a_pause():
  ledger, told = make(not_before=1000.0), []
  for _ in range(4):
    full = look('absent', ledger.not_before, message=FULL)
    ledger, action = supervisor.decide(ledger, full, LIMITS)
    told.append((ledger.zone, ledger.not_before - full.now))
    again = look('absent', ledger.not_before)
    again = supervisor.decide(ledger, again, LIMITS)[1]
    assert (action, again) == (WAIT, CREATE)
  assert told == [(1, 0.0), (0, 60.0), (1, 0.0), (0, 120.0)]


# Step before the launch, steps at each crash, and how often hosts are asked for.
CRASHES = ((0, [0], 1), (5, [5], 1), (5, [9, 9], 2), (0, [9, 20, 20], 3))


@pytest.mark.parametrize('state', ['active', 'absent'])
@pytest.mark.parametrize('first, steps, times', CRASHES)
def test_hosts_that_crash_are_replaced_after_a_step_forward(
  first, steps, times, state
):
  seen = look('absent', step=first)
  ledger, action = supervisor.decide(Ledger('j'), seen, LIMITS)
  now = 1030.0
  for step in steps:
    assert action == CREATE
    more = {'step': step, 'heard': 2000.0}
    ledger, _ = supervisor.decide(ledger, look('active', now, **more), LIMITS)
    more |= {'ended': supervisor.CRASHED, 'detail': 'host 3'}
    for word in ['active', 'deleting', 'absent'][
      -1 if state == 'absent' else 0 :
    ]:
      now += 99.0
      seen = look(word, now, **more)
      ledger, action = supervisor.decide(ledger, seen, LIMITS)
  assert (ledger.attempts, ledger.preemptions) == (times, 0)
  assert (ledger.reason, ledger.detail) == (supervisor.CRASHED, 'host 3')
  assert action == END


def test_hosts_are_asked_for_in_zones_that_answer():
  seen = look('absent', dark=(A,))
  ledger, action = supervisor.decide(make(), seen, LIMITS)
  assert (action, ledger.zone, ledger.unsettled) == (CREATE, 1, [B])
  # Until it answers, hosts may come from there.
  for dark, unsettled in (((B,), [B]), ((), [])):
    ledger, _ = supervisor.decide(ledger, look('absent', dark=dark), LIMITS)
    assert {*ledger.unsettled} - {A} == {*unsettled}


# Message of each failure, how often hosts are asked for, and the reason to end.
ENDS = [
  (ZERO, 1, supervisor.STRUCTURAL),
  ('odd', 21, supervisor.GAVE_UP),
  ('HTTP 503', 21, supervisor.GAVE_UP),
]


# The request is refused, or what was asked for fails.
@pytest.mark.parametrize('state', ['absent', 'failed'])
@pytest.mark.parametrize('message, times, reason', ENDS)
def test_failures_end_a_launch_after_some_tries(message, times, reason, state):
  ledger, now, asked = Ledger('j'), 0.0, False
  while not ledger.reason:
    text = message if asked else ''
    seen = look(state if asked else 'absent', now, message=text)
    ledger, action = supervisor.decide(ledger, seen, LIMITS)
    assert ledger.reason or not asked or ledger.not_before > now
    now, asked = now + 30.0, action == CREATE
  assert (ledger.attempts, ledger.reason) == (times, reason)
  assert ledger.detail == message
  assert action == (DELETE if state == 'failed' else END)
