"""Tests of what is hidden of Orbax's output, and what is not."""

import gc
import os
import signal
import sys
import time

import pytest

from bert_jax import errors
from bert_jax.runtime import signals
from bert_jax.workdir import orbax_noise


@pytest.fixture(autouse=True)
def shown(monkeypatch):
  """Returns a list that gets the errors that are shown."""
  found = []
  monkeypatch.setattr(
    sys, 'unraisablehook', lambda x: found.append(str(x.exc_value))
  )
  return found


def fail_in_finalizer(message):
  class Broken:
    def __del__(self):
      raise ValueError(message)

  Broken()


@pytest.mark.slow
def test_a_read_that_is_given_up_is_dropped(shown):
  async def read():
    try:
      await Never()
    except BaseException as error:
      raise Exception('Encountered error while reading') from error

  orbax_noise.drop()
  reading = read()
  reading.send(None)
  del reading
  gc.collect()
  assert not shown


class Never:
  def __await__(self):
    yield


class Interrupting:
  def __del__(self):
    os.kill(os.getpid(), signal.SIGTERM)


def test_no_error_but_that_of_orbax_is_dropped(shown):
  orbax_noise.drop()
  fail_in_finalizer('Event loop is closed')
  fail_in_finalizer('another')
  assert shown == ['another']


def test_to_drop_it_twice_is_to_drop_it_once(shown):
  orbax_noise.drop()
  hook = sys.unraisablehook
  orbax_noise.drop()
  assert sys.unraisablehook is hook


@pytest.mark.parametrize('before', [True, False])
def test_a_signal_in_a_finalizer_is_not_lost(before, monkeypatch):
  monkeypatch.setattr(signals, '_AGAIN', 0.01)
  if before:
    orbax_noise.drop()
  with pytest.raises(errors.Interrupted) as caught:
    with signals.raising():
      orbax_noise.drop()
      Interrupting()
      for _ in range(100):
        time.sleep(0.05)
      pytest.fail('not interrupted')
  assert caught.value.signum == signal.SIGTERM
