"""Tests of signals."""

import gc
import os
import signal
import time

import pytest

from bert_jax import errors
from bert_jax.runtime import signals


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM', 'SIGHUP'])
def test_raised_interrupts_where_it_is(foreground, name):
  number = getattr(signal, name)
  with pytest.raises(errors.Interrupted) as caught, signals.raising():
    os.kill(os.getpid(), number)
  assert caught.value.signum == number
  assert 'resume with the same command' in str(caught.value)


def test_deferred_records_the_first_signal():
  with signals.recording() as stop:
    assert stop.signum is None
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.signum == signal.SIGTERM


def test_a_hangup_that_is_ignored_stays_ignored():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
  try:
    with signals.raising(), signals.recording() as stop:
      os.kill(os.getpid(), signal.SIGHUP)
    assert stop.signum is None
  finally:
    signal.signal(signal.SIGHUP, before)


def test_the_old_handlers_come_back():
  before = signal.getsignal(signal.SIGTERM)
  with signals.recording():
    assert signal.getsignal(signal.SIGTERM) != before
  assert signal.getsignal(signal.SIGTERM) == before


def stop_in_a_callback():
  """Python ignores what is raised in callbacks of its garbage collector."""

  def interrupt(phase, info):
    del phase, info
    gc.callbacks.remove(interrupt)
    os.kill(os.getpid(), signal.SIGTERM)

  gc.collect()  # what other tests left
  gc.callbacks.append(interrupt)
  gc.collect()


def replace():
  """Does what Orbax does with any exception while it reads."""
  try:
    os.kill(os.getpid(), signal.SIGTERM)
  except BaseException as error:
    raise ValueError('cannot read') from error


def replace_in_a_finalizer():
  """As where garbage collection closes a coroutine of Orbax."""

  class Reader:
    def __del__(self):
      replace()

  Reader()


def stop_while_an_error_is_shown():
  """As where garbage collection finds many readers of Orbax."""

  class Broken:
    def __del__(self):
      raise ValueError('not shown')

  Broken()


@pytest.mark.parametrize(
  'do',
  [
    stop_in_a_callback,
    replace,
    replace_in_a_finalizer,
    stop_while_an_error_is_shown,
  ],
)
def test_a_signal_that_python_or_a_library_drops_is_not_lost(do, monkeypatch):
  def show(unraisable):
    del unraisable
    if do is stop_while_an_error_is_shown:
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr('sys.unraisablehook', show)
  monkeypatch.setattr(signals, '_AGAIN', 0.01)  # what is sent again comes soon
  with pytest.raises(errors.Interrupted) as caught:
    with signals.raising():
      do()
      for _ in range(100):
        time.sleep(0.05)
      pytest.fail('not interrupted')
  assert caught.value.signum == signal.SIGTERM


def test_other_errors_pass():
  with pytest.raises(KeyError, match='other'):
    with signals.raising():
      raise KeyError('other')


def test_what_goes_wrong_while_stopping_is_told():
  with pytest.raises(errors.UserError, match='cannot save'):
    with signals.raising():
      try:
        os.kill(os.getpid(), signal.SIGTERM)
      finally:
        raise errors.UserError('cannot save')
