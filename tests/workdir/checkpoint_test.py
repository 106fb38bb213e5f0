"""Tests of checkpoints."""

import errno
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.parallel import device_mesh
from bert_jax.runtime import storage
from bert_jax.workdir import checkpoint
from tests.workdir.checkpoints import (
  make_state,
  make_template,
  restore,
  save_in_background,
  write,
)


def test_the_newest_comes_back_bit_for_bit(tmp_path):
  marks = write(tmp_path)
  found, facts = restore(tmp_path)
  assert int(found['step']) == 3
  np.testing.assert_array_equal(found['w'], make_state(3)['w'])
  assert facts['n'] == 3 and facts['fingerprint'] == marks[3]


def test_a_save_is_announced_before_anything_is_written(tmp_path):
  with checkpoint.Checkpoints(str(tmp_path), 3, 0) as checkpoints:
    with pytest.raises(KeyError):
      checkpoints.save(1, make_state(1), {}.__getitem__)
  assert not os.listdir(tmp_path)


def test_nothing_saved_is_none(folder):
  assert restore(folder) is None


def test_the_newest_and_every_nth_are_kept(tmp_path):
  write(tmp_path, range(1, 9), keep=2, keep_every=3)
  kept = sorted(int(n) for n in os.listdir(tmp_path) if n.isdigit())
  assert kept == [3, 6, 7, 8]


def test_restores_on_other_devices(tmp_path):
  split = jax.device_put(
    make_state(5)['w'], device_mesh.row_sharding(device_mesh.make_mesh())
  )
  with checkpoint.Checkpoints(str(tmp_path), 3, 0) as checkpoints:
    checkpoints.save(5, {'step': jnp.int32(5), 'w': split})
  one = jax.sharding.SingleDeviceSharding(jax.devices()[3])
  with checkpoint.Checkpoints(str(tmp_path), 3, 0) as checkpoints:
    found, _ = checkpoints.restore(make_template(layout=one))
  np.testing.assert_array_equal(found['w'], make_state(5)['w'])
  assert found['w'].devices() == {jax.devices()[3]}


def test_an_unfinished_save_is_no_checkpoint_and_removed_at_once(folder):
  write(f'{folder}/c', (1, 2))
  newest, unfinished = 2, '3.orbax-checkpoint-tmp'
  if storage.is_remote(folder):
    newest, unfinished = 1, '2'
    storage.delete(f'{folder}/c/2/commit_success.txt')
  else:
    os.makedirs(f'{folder}/c/{unfinished}/state')
  with checkpoint.Checkpoints(f'{folder}/c', 3, 0) as checkpoints:
    assert unfinished not in storage.list_names(f'{folder}/c')
    found, _ = checkpoints.restore(make_template())
    assert int(found['step']) == newest
    checkpoints.save(newest + 1, make_state(newest + 1))
  assert int(restore(f'{folder}/c')[0]['step']) == newest + 1


def fill_disk(monkeypatch):
  """Lets the save of step 5 fail at its end."""
  original = os.rename

  def fail(source, target, **kwargs):
    if str(target).endswith('c/5'):
      full = errno.ENOSPC, os.strerror(errno.ENOSPC)
      raise OSError(*full, source, None, target)  # as the disk would
    return original(source, target, **kwargs)

  monkeypatch.setattr(os, 'rename', fail)


def test_a_save_that_failed_in_the_background_is_not_complete(
  tmp_path, monkeypatch
):
  fill_disk(monkeypatch)
  with pytest.raises(OSError, match='No space left.*none was saved'):
    with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
      save_in_background(checkpoints, 5)
      assert checkpoints.complete is None
  assert checkpoints.complete is None
  monkeypatch.undo()
  with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
    save_in_background(checkpoints, 5)
    assert checkpoints.complete == 5
  assert checkpoints.complete == 5


def test_the_best_is_not_restored_after_a_save_that_failed(
  tmp_path, monkeypatch
):
  fill_disk(monkeypatch)
  with pytest.raises(OSError, match='No space left.*step 4 is kept'):
    with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
      checkpoints.best = 4, 0.5
      checkpoints.save(4, make_state(4))
      checkpoints.save(5, make_state(5))
      checkpoints.restore_best(make_template())


def test_the_best_is_kept_until_a_better_one_is_complete(tmp_path, monkeypatch):
  directory = str(tmp_path / 'c')
  fill_disk(monkeypatch)
  with pytest.raises(OSError, match='No space left.*step 4 is kept'):
    with checkpoint.Checkpoints(directory, 1, 0) as checkpoints:
      for step, best in (3, (3, 0.5)), (4, (3, 0.5)), (5, (5, 0.6)):
        checkpoints.best = best
        checkpoints.save(step, make_state(step))
  monkeypatch.undo()
  with checkpoint.Checkpoints(directory, 1, 0) as checkpoints:
    checkpoints.restore(make_template())
    assert checkpoints.best == (3, 0.5)
    assert int(checkpoints.restore_best(make_template())['step']) == 3
    checkpoints.best = 5, 0.6
    checkpoints.save(5, make_state(5))
  assert sorted(os.listdir(directory)) == ['5']


def test_nothing_is_deleted_for_a_checkpoint_that_is_not_there(folder):
  directory = f'{folder}/c'
  with pytest.raises(OSError, match='step 4 ended without.*step 3 is kept'):
    with checkpoint.Checkpoints(directory, 1, 0) as checkpoints:
      checkpoints.save(3, make_state(3))
      save_in_background(checkpoints, 4)
      storage.delete(f'{directory}/4')
      checkpoints.save(5, make_state(5))
  assert int(restore(directory)[0]['step']) == 3
