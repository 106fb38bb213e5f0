"""Tests of what is hidden of Orbax's output, and what is not."""

import os
import signal
import sys
import time
import types

import pytest

from bert_jax import errors
from bert_jax.runtime import signals
from bert_jax.workdir import checkpoint_reader


@pytest.fixture(autouse=True)
def shown(monkeypatch):
  """Returns a list that gets the errors that are shown."""
  texts = []
  monkeypatch.setattr(
    sys, 'unraisablehook', lambda x: texts.append(str(x.exc_value))
  )
  return texts


@types.coroutine
def never():
  yield


async def read_array(error):
  try:
    await never()
  finally:
    raise error


def of_orbax(function):
  """Returns a coroutine function as if it were from Orbax."""
  code = function.__code__.replace(co_filename='/orbax/checkpoint/reading.py')
  return types.FunctionType(code, globals())


@pytest.mark.parametrize(
  ('function', 'error', 'is_shown'),
  [
    (of_orbax(read_array), RuntimeError('of another event loop'), False),
    (read_array, RuntimeError('of another event loop'), True),
    (read_array, RuntimeError('Event loop is closed'), False),
    (of_orbax(read_array), errors.Interrupted(signal.SIGTERM), True),
  ],
)
def test_a_read_of_orbax_that_is_given_up_is_dropped(
  shown, function, error, is_shown
):
  checkpoint_reader.drop_noise()
  reading = function(error)
  reading.send(None)
  del reading
  assert shown == [str(error)] * is_shown


class Interrupting:
  def __del__(self):
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize('before', [True, False])
def test_a_signal_in_a_finalizer_is_not_lost(before, monkeypatch):
  monkeypatch.setattr(signals, '_AGAIN', 0.01)
  if before:
    checkpoint_reader.drop_noise()
  with pytest.raises(errors.Interrupted) as caught:
    with signals.raising():
      checkpoint_reader.drop_noise()
      Interrupting()
      for _ in range(100):
        time.sleep(0.05)
      pytest.fail('not interrupted')
  assert caught.value.signum == signal.SIGTERM
