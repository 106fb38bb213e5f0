"""Checkpoints in a bucket, where objects are changed as a whole."""

import numpy as np
import pytest

from bert_jax.runtime import storage
from bert_jax.workdir import checkpoint, checkpoint_reader
from tests.workdir.checkpoints import (
  make_state,
  make_template,
  restore,
  save_in_background,
  write,
)


def objects(directory, step):
  """Returns the objects with array data of a checkpoint."""
  found = storage.expand(f'{directory}/{step}')
  return [path for path in found if '/d/' in path]


def rewrite(path, change):
  raw = storage.read(path)
  with storage.replacing(path) as new, open(new, 'wb') as file:
    file.write(change(raw))


@pytest.mark.slow
def test_a_bucket_holds_checkpoints_as_a_disk_does(remote, capsys):
  marks = write(f'{remote}/c', range(1, 9), keep=2, keep_every=3)
  assert checkpoint_reader.list_steps(f'{remote}/c') == [3, 6, 7, 8]
  found, facts = restore(f'{remote}/c')
  assert int(found['step']) == 8 and facts['fingerprint'] == marks[8]
  np.testing.assert_array_equal(found['w'], make_state(8)['w'])
  for path in objects(f'{remote}/c', 8):
    rewrite(path, lambda raw: raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:])
  found, _ = restore(f'{remote}/c')
  assert int(found['step']) == 7
  assert 'checkpoint 8 is bad' in capsys.readouterr().out
  assert storage.list_names(f'{remote}/c_bad') == ['8']
  assert checkpoint_reader.list_steps(f'{remote}/c') == [3, 6, 7]
  with checkpoint.Checkpoints(f'{remote}/c', 2, 3) as c:
    c.save(8, make_state(8))
  assert int(restore(f'{remote}/c')[0]['step']) == 8


def test_a_bucket_that_refuses_is_no_damage(ill, remote):
  write(f'{remote}/c', (1, 2))
  with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
    ill.only, ill.status = '/d/', 403
    with pytest.raises(OSError, match='403') as caught:
      checkpoints.restore(make_template(), start_over=True)
    ill.status = 0
  assert '\n' not in str(caught.value)
  assert storage.list_names(remote) == ['c']
  assert int(restore(f'{remote}/c')[0]['step']) == 2


def test_checkpoints_that_a_bucket_does_not_list_may_be_listed_later(
  ill, remote
):
  write(f'{remote}/c', (1,))
  ill.status = 503
  for read in (
    lambda: checkpoint.Checkpoints(f'{remote}/c', 3, 0),
    lambda: checkpoint_reader.list_unfinished(f'{remote}/c'),
  ):
    with pytest.raises(OSError, match='503'):
      read()


def test_a_save_that_a_bucket_refused_in_the_background_is_not_complete(
  ill, remote
):
  write(f'{remote}/c', (1,))
  with pytest.raises(OSError, match='step 1 is kept'):
    with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
      checkpoints.restore(make_template())
      assert checkpoints.complete == 1
      ill.only, ill.status = 'commit_success', 403
      save_in_background(checkpoints, 2)
      ill.status = 0
      assert checkpoints.complete == 1
  assert checkpoints.complete == 1


def test_a_save_that_a_bucket_refuses_is_one_line(ill, remote):
  write(f'{remote}/c', (1,))
  with pytest.raises(OSError, match='403') as caught:
    with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
      ill.status = 403
      checkpoints.save(2, make_state(2))
  assert 'step 1 is kept' in str(caught.value)
  assert '\n' not in str(caught.value)
  ill.status = 0
  assert int(restore(f'{remote}/c')[0]['step']) == 1
