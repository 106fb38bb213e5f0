"""Tests of what is hidden of Orbax's output, and what is not."""

import gc
import os
import signal
import sys
import time
import types
import warnings

import pytest

from bert_jax import errors
from bert_jax.runtime import signals
from bert_jax.workdir import checkpoint_reader


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


@types.coroutine
def never():
  yield


async def read_shard():
  try:
    await never()
  except BaseException as error:
    raise Exception('Encountered error while reading') from error


async def read_array(arriving=None):
  try:
    await read_shard()
  finally:
    # Deeper than one cause: of a lock that belongs to another loop.
    raise arriving or RuntimeError('bound to a different event loop')


def of_orbax(function):
  """Returns a coroutine function as if it were from Orbax."""
  code = function.__code__.replace(co_filename='/orbax/checkpoint/reading.py')
  return types.FunctionType(code, globals(), argdefs=function.__defaults__)


@pytest.mark.parametrize(
  ('function', 'expected'),
  [
    (of_orbax(read_shard), []),
    (of_orbax(read_array), []),
    (read_array, ['bound to a different event loop']),
  ],
)
def test_a_read_that_is_given_up_is_dropped(shown, function, expected):
  checkpoint_reader.drop_noise()
  reading = function()
  reading.send(None)
  del reading
  gc.collect()
  assert shown == expected


def test_a_signal_while_a_read_is_given_up_is_not_dropped(shown):
  checkpoint_reader.drop_noise()
  interrupted = errors.Interrupted(signal.SIGTERM)
  reading = of_orbax(read_array)(interrupted)
  reading.send(None)
  del reading
  gc.collect()
  assert shown == [str(interrupted)]


def test_a_read_that_never_began_is_dropped(shown):
  checkpoint_reader.drop_noise()
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    of_orbax(read_shard)()
  assert not shown
  with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter('always')
    checkpoint_reader.drop_noise()
    read_shard()
  assert not warned


class Interrupting:
  def __del__(self):
    os.kill(os.getpid(), signal.SIGTERM)


def test_no_error_but_that_of_orbax_is_dropped(shown):
  checkpoint_reader.drop_noise()
  fail_in_finalizer('Event loop is closed')
  fail_in_finalizer('another')
  assert shown == ['another']


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
