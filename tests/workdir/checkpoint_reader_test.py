"""Tests of reading checkpoints without a run."""

import os
import signal
import sys
import time
import types

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.runtime import signals
from bert_jax.workdir import checkpoint_reader
from tests.workdir.checkpoints import damage, make_params_state, write_params


def contents(directory):
  found = {}
  for root, folders, names in os.walk(directory):
    for name in folders + names:
      path = os.path.join(root, name)
      data = b''
      if name in names:
        with open(path, 'rb') as file:
          data = file.read()
      found[path] = os.stat(path).st_mtime_ns, data
  return found


def test_read_returns_the_newest_parameters_or_those_of_a_step(tmp_path):
  write_params(tmp_path)
  for step, chosen in ((2, None), (2, 2), (1, 1)):
    params, facts = checkpoint_reader.read(str(tmp_path), chosen)
    kernel = params['dense']['kernel']
    assert list(params) == ['dense'] and type(kernel) is np.ndarray
    np.testing.assert_array_equal(kernel[0, :3], [step, step + 1, step + 2])
    assert facts['n'] == facts['step'] == step


def test_read_goes_past_the_bad_and_changes_nothing(tmp_path, capsys):
  write_params(tmp_path / 'c', (1, 2, 3))
  damage(tmp_path / 'c', 3)
  # As of a training that is saving, and of one that was killed.
  os.mkdir(tmp_path / 'c' / '4.orbax-checkpoint-tmp')
  before = contents(tmp_path)
  assert checkpoint_reader.read(str(tmp_path / 'c'))[1]['step'] == 2
  assert 'checkpoint 3 is bad' in capsys.readouterr().out
  assert contents(tmp_path) == before


def test_read_says_which_steps_there_are(tmp_path):
  with pytest.raises(
    errors.UserError, match='holds no sound checkpoint; train'
  ):
    checkpoint_reader.read(str(tmp_path / 'c'))
  write_params(tmp_path / 'c')
  with pytest.raises(errors.UserError, match='of step 7; choose one of 1, 2'):
    checkpoint_reader.read(str(tmp_path / 'c'), 7)


def test_read_finds_the_newest_of_a_bucket(remote):
  write_params(f'{remote}/c')
  params, facts = checkpoint_reader.read(f'{remote}/c')
  assert facts['step'] == 2
  np.testing.assert_array_equal(
    params['dense']['kernel'], make_params_state(2)['params']['dense']['kernel']
  )
  with pytest.raises(
    errors.UserError, match='holds no sound checkpoint; train'
  ):
    checkpoint_reader.read(f'{remote}/nothing')


@pytest.fixture
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


@pytest.mark.usefixtures('shown')
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
