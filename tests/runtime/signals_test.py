"""Tests of signals."""

import os
import signal

import pytest

from bert_jax import errors
from bert_jax.runtime import signals


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM'])
def test_raised_interrupts_where_it_is(name):
  number = getattr(signal, name)
  with pytest.raises(errors.Interrupted) as caught:
    with signals.raising():
      os.kill(os.getpid(), number)
  assert caught.value.signum == number
  assert 'resume with the same command' in str(caught.value)


def test_deferred_records_the_first_signal():
  with signals.recording() as stop:
    assert stop.signum is None
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.signum == signal.SIGTERM


def test_the_old_handlers_come_back():
  before = signal.getsignal(signal.SIGTERM)
  with signals.recording():
    assert signal.getsignal(signal.SIGTERM) != before
  assert signal.getsignal(signal.SIGTERM) == before
