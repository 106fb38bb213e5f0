"""What cannot be read is not proven damaged: nothing is moved."""

import errno
import os

import jax.numpy as jnp
import pytest

from bert_jax import errors
from bert_jax.workdir import checkpoint_reader
from tests.workdir.checkpoints import (
  array_files,
  make_params_state,
  restore_params,
  write_params,
)


def hide_behind_loop(path):
  """Makes a file that the operating system refuses to open: ELOOP."""
  os.remove(path)
  os.symlink(path, path)


REFUSALS = {
  'arrays': lambda path: [hide_behind_loop(x) for x in array_files(path, '')],
  'facts': lambda path: hide_behind_loop(path / 'facts' / 'metadata'),
}


@pytest.mark.parametrize('what', REFUSALS)
def test_what_cannot_be_opened_is_not_moved(tmp_path, what):
  write_params(tmp_path / 'c')
  REFUSALS[what](tmp_path / 'c' / '2')
  for run in (
    lambda: restore_params(tmp_path / 'c', start_over=True),
    lambda: checkpoint_reader.read(str(tmp_path / 'c')),
  ):
    with pytest.raises(OSError, match='Too many levels'):
      run()
  assert sorted(os.listdir(tmp_path / 'c')) == ['1', '2']
  assert os.listdir(tmp_path) == ['c']


def test_a_disk_that_fails_is_no_damage(tmp_path, monkeypatch):
  write_params(tmp_path / 'c')
  original = os.stat

  def fail(path, *args, **kwargs):
    if str(path).endswith('c/2/state'):
      raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return original(path, *args, **kwargs)

  monkeypatch.setattr(os, 'stat', fail)
  for read in (checkpoint_reader.read, restore_params):
    with pytest.raises(OSError, match='Input/output'):
      read(str(tmp_path / 'c'))
  monkeypatch.undo()
  assert restore_params(tmp_path / 'c')[1]['step'] == 2


def test_checkpoints_that_cannot_be_listed_stop_a_run(tmp_path, monkeypatch):
  write_params(tmp_path / 'c')
  original = os.listdir

  def fail(path='.'):
    if str(path).endswith('/c'):
      raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return original(path)

  monkeypatch.setattr(os, 'listdir', fail)
  for run in (
    lambda: restore_params(tmp_path / 'c', start_over=True),
    lambda: checkpoint_reader.read(str(tmp_path / 'c')),
  ):
    with pytest.raises(OSError, match='Input/output error: .*/c'):
      run()


def other_array(tree):
  tree['params']['more'] = jnp.zeros(2)


def other_optimizer(tree):
  del tree['moments']


def other_shape(tree):
  tree['params']['dense']['kernel'] = jnp.zeros((20, 31))


def other_type(tree):
  tree['params']['dense']['kernel'] = jnp.zeros((20, 30), jnp.bfloat16)


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (other_array, 'params/more: missing there, an array here'),
    (other_optimizer, 'moments/dense/kernel: an array there, missing here'),
    (other_shape, r'kernel: float32\[20, 30\] there, float32\[20, 31\] here'),
    (other_type, r'kernel: float32\[20, 30\] there, bfloat16\[20, 30\] here'),
  ],
)
def test_a_state_of_another_version_is_not_moved(tmp_path, change, said):
  write_params(tmp_path / 'c')
  tree = make_params_state(2)
  change(tree)
  said = f'c/2 holds .*{said}.*another version or .*Nothing was moved'
  with pytest.raises(errors.UserError, match=said):
    restore_params(tmp_path / 'c', tree, start_over=True)
  assert sorted(os.listdir(tmp_path / 'c')) == ['1', '2']
