"""Tests of how a main thread that hangs is noticed."""

import contextlib

import pytest

from bert_jax.runtime import pulse

PERIOD = 2.0


def idle(watch, seconds, **kwargs):
  """Returns the first message within so many seconds, and when it came."""
  for k in range(1, int(seconds / PERIOD) + 1):
    if message := watch.find_hang(**kwargs):
      return message, k * PERIOD
  return None, seconds


@pytest.fixture
def made():
  beat = pulse.Pulse(watched=True)
  return beat, pulse.Watch(beat, PERIOD)


def train(beat, watch, updates, seconds):
  """Does updates that take so many seconds each."""
  for _ in range(updates):
    assert idle(watch, seconds - PERIOD) == (None, seconds - PERIOD)
    beat.updates += 1
    assert watch.find_hang() is None


def test_a_loop_that_stands_still_hangs_after_ten_minutes(made):
  beat, watch = made
  for _ in range(50):  # 10 updates per look
    beat.updates += 10
    assert watch.find_hang() is None
  message, seconds = idle(watch, 3600)
  assert seconds == 600
  assert message == (
    'no training step or evaluation batch for 600 s, usually 0.201 s'
  )


def test_slow_updates_have_twenty_times_their_time(made):
  beat, watch = made
  train(beat, watch, 12, 100)  # ten are finished, after 1200 s
  message, seconds = idle(watch, 3600)
  assert seconds == 20 * 120
  assert message.endswith('for 2400 s, usually 120 s')


def test_the_first_update_has_an_hour(made):
  beat, watch = made
  train(beat, watch, 2, 4)  # begun
  message, seconds = idle(watch, 5000)
  assert seconds == 3600
  assert message == 'no training step or evaluation batch for 3600 s'


def test_an_hour_of_evaluation_is_no_hang(made):
  beat, watch = made
  train(beat, watch, 5, 4)
  for _ in range(10):
    assert idle(watch, 400)[0] is None
    beat.evaluated += 1
  assert idle(watch, 3600)[0] is not None


def test_what_is_not_watched_may_take_any_time(made):
  beat, watch = made
  train(beat, watch, 5, 4)
  with contextlib.suppress(OSError), beat.watching(False):
    assert idle(watch, 10_000)[0] is None
    raise OSError
  assert idle(watch, 10_000)[1] == 600


def test_nothing_is_watched_before_and_after_the_loop():
  beat = pulse.Pulse()
  watch = pulse.Watch(beat, PERIOD)
  assert idle(watch, 10_000)[0] is None
  with beat.watching():
    train(beat, watch, 5, 4)
  assert idle(watch, 10_000)[0] is None


def test_who_waits_for_another_process_does_not_hang(made):
  beat, watch = made
  train(beat, watch, 5, 4)
  assert idle(watch, 10_000, excused=True)[0] is None
  assert idle(watch, 10_000)[1] == 600
