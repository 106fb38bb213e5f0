"""Tests of reading checkpoints without a run."""

import os

import numpy as np
import pytest

from bert_jax import errors
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
