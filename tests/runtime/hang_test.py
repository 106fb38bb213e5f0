"""Tests of how a training loop that hangs is noticed."""

import contextlib

import pytest

from bert_jax.runtime import hang
from tests import processes


class Ended(BaseException):
  """Raised instead of ending this process."""


@pytest.fixture
def timer(monkeypatch):
  def end(message):
    raise Ended(message)

  monkeypatch.setattr(hang, '_end', end)
  return hang.Timer()


def idle(timer, seconds):
  """Lets so many seconds pass without progress."""
  for _ in range(int(seconds / hang._PERIOD)):
    timer._look()


def end(timer):
  """Returns the message with which a loop that stands still ends."""
  with pytest.raises(Ended) as raised:
    idle(timer, 10_000)
  return str(raised.value)


def train(timer, updates, seconds):
  """Does updates that take so many seconds each."""
  for _ in range(updates):
    idle(timer, seconds)
    timer.arm(update=True)


@pytest.mark.parametrize(
  ('updates', 'seconds', 'said'),
  [
    # A loop that stands still has ten minutes: 48 are finished, after 200 s.
    (50, 4, 'no training step or evaluation batch for 600 s, usually 4.17 s'),
    (12, 100, 'for 2400 s, usually 120 s'),  # 20 times; 10 took 1200 s
    (2, 4, 'for 3600 s'),  # begun; the first has an hour
  ],
)
def test_a_loop_may_take_twenty_times_its_usual_time(
  timer, updates, seconds, said
):
  train(timer, updates, seconds)
  idle(timer, 598)
  assert end(timer).endswith(said)


def test_what_pauses_the_timer_may_take_any_time(timer):
  train(timer, 5, 6)
  idle(timer, 300)
  with contextlib.suppress(OSError), timer.paused():
    idle(timer, 10_000)
    raise OSError
  idle(timer, 598)
  assert 'for 600 s' in end(timer)


HANGING = """
import time
from bert_jax.runtime import hang

hang._PERIOD, hang._FIRST_SECONDS = 0.01, 0.1

def wait_for_ever():
  time.sleep(60)

with hang.Timer().running():
  wait_for_ever()
"""


def test_a_process_that_hangs_ends_with_its_stacks():
  result = processes.run_code(HANGING)
  assert result.returncode == 75
  assert (
    'error: no training step or evaluation batch for 0 s. Start the same '
    'command again to resume.\n'
  ) in result.stderr
  assert 'in wait_for_ever\n' in result.stderr
