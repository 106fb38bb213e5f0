"""Tests of checkpoints."""

import errno
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import agreement, device_mesh
from bert_jax.runtime import globs, storage
from bert_jax.workdir import checkpoint, checkpoint_reader
from tests import environment

ROOT = str(pathlib.Path(__file__).resolve().parents[2])


def state(step):
  return {'step': jnp.int32(step), 'w': jnp.arange(1024.0) * step}


def template(layout=None):
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), state(0)
  )


def write(directory, steps=(1, 2, 3), keep=3, keep_every=0):
  with checkpoint.Checkpoints(str(directory), keep, keep_every) as c:
    return {step: c.save(step, state(step), {'n': step}) for step in steps}


def restore(directory, **kwargs):
  with checkpoint.Checkpoints(str(directory), 3, 0) as checkpoints:
    return restore_with(checkpoints, **kwargs)


def restore_with(checkpoints, **kwargs):
  layout = device_mesh.replicate(device_mesh.make_mesh())
  return checkpoints.restore(template(layout), **kwargs)


def make_params_state(step):
  # A matrix: Orbax splits it, unlike the moments.
  params = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) + step}}
  moments = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) * step}}
  return {'step': jnp.int32(step), 'params': params, 'moments': moments}


def write_params(directory, steps=(1, 2)):
  with checkpoint.Checkpoints(str(directory), 3, 0) as c:
    for step in steps:
      c.save(step, make_params_state(step), {'n': step})


def restore_params(directory, like=None, **kwargs):
  layout = device_mesh.replicate(device_mesh.make_mesh())
  wanted = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout),
    like or make_params_state(0),
  )
  with checkpoint.Checkpoints(str(directory), 3, 0) as checkpoints:
    return checkpoints.restore(wanted, **kwargs)


def array_files(directory, step):
  """Returns the files with array data of a checkpoint, largest first."""
  found = []
  for root, _, names in os.walk(os.path.join(directory, str(step), 'state')):
    found += [os.path.join(root, n) for n in names if root.endswith('/d')]
  return sorted(found, key=os.path.getsize, reverse=True)


def flip_bit(path, at):
  with open(path, 'r+b') as file:
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 1]))


def truncate(path):
  with open(path, 'r+b') as file:
    file.truncate(os.path.getsize(path) // 2)


def damage(directory, step):
  for path in array_files(directory, step):
    truncate(path)


def test_the_newest_comes_back_bit_for_bit(tmp_path):
  marks = write(tmp_path)
  found, facts = restore(tmp_path)
  assert int(found['step']) == 3
  np.testing.assert_array_equal(found['w'], state(3)['w'])
  assert facts['n'] == 3 and facts['fingerprint'] == marks[3]


def test_nothing_saved_is_none(folder):
  assert restore(folder) is None


def test_the_newest_and_every_nth_are_kept(tmp_path):
  write(tmp_path, range(1, 9), keep=2, keep_every=3)
  kept = sorted(int(n) for n in os.listdir(tmp_path) if n.isdigit())
  assert kept == [3, 6, 7, 8]


def test_a_flipped_bit_is_named_and_the_one_before_is_used(tmp_path, capsys):
  write(tmp_path / 'c')
  path = array_files(tmp_path / 'c', 3)[0]
  flip_bit(path, os.path.getsize(path) // 2)
  found, _ = restore(tmp_path / 'c')
  assert int(found['step']) == 2
  assert 'checkpoint 3 is bad' in capsys.readouterr().out
  assert os.listdir(tmp_path / 'c_bad') == ['3']


def test_fingerprints_notice_what_orbax_does_not(tmp_path):
  # The arrays are sound but are not those of the fingerprint.
  write(tmp_path / 'c', steps=(1, 2))
  os.rename(tmp_path / 'c' / '2' / 'state', tmp_path / 'state2')
  os.rename(tmp_path / 'c' / '1' / 'state', tmp_path / 'c' / '2' / 'state')
  os.rename(tmp_path / 'state2', tmp_path / 'c' / '1' / 'state')
  with pytest.raises(errors.UserError, match='differ from their fingerprint'):
    restore(tmp_path / 'c')


def test_all_bad_is_an_error_unless_told_to_start_over(tmp_path):
  write(tmp_path / 'c')
  for step in (1, 2, 3):
    damage(tmp_path / 'c', step)
  with pytest.raises(errors.UserError, match='start_over=True'):
    restore(tmp_path / 'c')
  assert sorted(n for n in os.listdir(tmp_path / 'c') if n.isdigit()) == [
    '1',
    '2',
    '3',
  ]
  assert restore(tmp_path / 'c', start_over=True) is None
  assert sorted(os.listdir(tmp_path / 'c_bad')) == ['1', '2', '3']


def write_text(path, text):
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)


# What is done to a checkpoint, and what is said of it.
DAMAGE = {
  'every array is cut': (
    lambda path: [truncate(x) for x in array_files(path, '')],
    'byte range .* is not valid for value of size',
  ),
  # All of them, since Orbax leaves files behind that it does not read.
  'the arrays are gone': (
    lambda path: [os.remove(x) for x in array_files(path, '')],
    'Truncated Zstd-compressed stream|NOT_FOUND',
  ),
  'the index is gone': (
    lambda path: os.remove(path / 'state' / 'manifest.ocdbt'),
    'does not exist',
  ),
  'the index is cut': (
    lambda path: truncate(path / 'state' / 'manifest.ocdbt'),
    'Error decoding manifest',
  ),
  'the state is gone': (
    lambda path: shutil.rmtree(path / 'state'),
    'state is missing',
  ),
  'the facts are gone': (
    lambda path: os.remove(path / 'facts' / 'metadata'),
    'facts/metadata is missing',
  ),
  'the facts are cut': (
    lambda path: truncate(path / 'facts' / 'metadata'),
    'one of its JSON files is unreadable',
  ),
  'the facts are others': (
    lambda path: write_text(path / 'facts' / 'metadata', '[1]'),
    'its facts are incomplete',
  ),
  'the metadata are cut': (
    lambda path: truncate(path / 'state' / '_METADATA'),
    'one of its JSON files is unreadable',
  ),
}


@pytest.mark.parametrize('kind', DAMAGE)
def test_damage_is_named_and_set_aside(tmp_path, capsys, kind):
  write_params(tmp_path / 'c')
  do, said = DAMAGE[kind]
  do(tmp_path / 'c' / '2')
  assert checkpoint_reader.read(str(tmp_path / 'c'))[1]['step'] == 1
  output = capsys.readouterr().out
  assert re.search(f'checkpoint 2 is bad: .*({said})', output), output
  assert restore_params(tmp_path / 'c')[1]['step'] == 1
  output = capsys.readouterr().out
  assert re.search(f'checkpoint 2 is bad: .*({said})', output), output
  assert os.listdir(tmp_path / 'c_bad') == ['2']


def test_sound_arrays_need_no_metadata(tmp_path):
  write_params(tmp_path)
  os.remove(tmp_path / '2' / 'state' / '_METADATA')
  assert checkpoint_reader.read(str(tmp_path))[1]['step'] == 2
  assert restore_params(tmp_path)[1]['step'] == 2


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
    lambda: restore_params(tmp_path / 'c'),
    lambda: restore_params(tmp_path / 'c', start_over=True),
    lambda: checkpoint_reader.read(str(tmp_path / 'c')),
  ):
    with pytest.raises(
      errors.UserError, match='c/2: .*Too many levels.*nothing was moved'
    ):
      run()
  assert sorted(x for x in os.listdir(tmp_path / 'c')) == ['1', '2']
  assert os.listdir(tmp_path) == ['c']


@pytest.mark.parametrize('code', [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_disk_that_fails_is_no_damage(tmp_path, monkeypatch, code):
  write_params(tmp_path / 'c')
  original = os.stat

  def fail(path, *args, **kwargs):
    if str(path).endswith('c/2/state'):
      raise OSError(code, os.strerror(code), path)
    return original(path, *args, **kwargs)

  monkeypatch.setattr(os, 'stat', fail)
  said = f'c/2: .*{os.strerror(code)}.*nothing was moved'
  with pytest.raises(errors.UserError, match=said):
    restore_params(tmp_path / 'c')
  with pytest.raises(errors.UserError, match=said):
    checkpoint_reader.read(str(tmp_path / 'c'))
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
  said = 'cannot list .*/c: Input/output error. Nothing was moved'
  for run in (
    lambda: restore_params(tmp_path / 'c', start_over=True),
    lambda: checkpoint_reader.read(str(tmp_path / 'c')),
  ):
    with pytest.raises(errors.UserError, match=said):
      run()


def test_a_checkpoint_that_orbax_does_not_see_is_not_passed_over(
  tmp_path, monkeypatch
):
  write_params(tmp_path / 'c')
  # As if the disk had not answered when Orbax asked for the folder.
  monkeypatch.setattr(
    checkpoint.ocp.CheckpointManager, 'all_steps', lambda *_: []
  )
  assert restore_params(tmp_path / 'c')[1]['step'] == 2
  assert checkpoint_reader.read(str(tmp_path / 'c'))[1]['step'] == 2


def test_a_host_whose_disk_fails_keeps_all_from_condemning(
  tmp_path, monkeypatch
):
  write(tmp_path / 'c')
  damage(tmp_path / 'c', 3)
  votes = []

  def gather(own):
    votes.append(own)
    # What is damaged here another host cannot read.
    other = {'damaged': False, 'message': 'EIO in c/3', 'exit_code': 75}
    return [own, json.dumps(other if own != '{}' else {})]

  monkeypatch.setattr(agreement, 'gather_texts', gather)
  with pytest.raises(errors.UserError, match='^on host 1: EIO') as caught:
    restore(tmp_path / 'c')
  assert caught.value.exit_code == 75
  # On the files, the facts, the arrays, their shapes.
  assert votes[:2] == votes[3:] * 2 == ['{}'] * 2
  assert json.loads(votes[2])['damaged'] and os.listdir(tmp_path) == ['c']


def test_damage_that_another_host_alone_sees_is_named_here(
  tmp_path, monkeypatch, capsys
):
  write(tmp_path / 'c')
  other = {'damaged': True, 'message': 'a shard is cut', 'exit_code': None}
  monkeypatch.setattr(
    agreement, 'gather_texts', lambda own: [own, json.dumps(other)]
  )
  with pytest.raises(errors.UserError, match='1: on host 1: a shard is cut'):
    restore(tmp_path / 'c')
  assert 'checkpoint 3 is bad: on host 1: a shard' in capsys.readouterr().out
  assert os.listdir(tmp_path) == ['c']


def test_a_save_that_failed_in_the_background_is_not_complete(
  tmp_path, monkeypatch
):
  original = os.rename

  def fail(source, target, **kwargs):
    if str(target).endswith('c/5'):
      full = errno.ENOSPC, os.strerror(errno.ENOSPC)
      raise OSError(*full, source, None, target)  # as the disk would
    return original(source, target, **kwargs)

  monkeypatch.setattr(os, 'rename', fail)
  with pytest.raises(errors.UserError, match='No space left.*none was saved'):
    with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
      save_in_background(checkpoints, 5)
      assert checkpoints.complete is None
  assert checkpoints.complete is None
  monkeypatch.undo()
  with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
    save_in_background(checkpoints, 5)
    assert checkpoints.complete == 5
  assert checkpoints.complete == 5


def save_in_background(checkpoints, step):
  """Saves a state and waits, but not by `save`, until that has ended."""
  checkpoints.save(step, state(step), {})
  deadline = time.monotonic() + 20
  while checkpoints._manager.is_saving_in_progress():
    assert time.monotonic() < deadline
    time.sleep(0.01)


@pytest.mark.slow
def test_damage_that_one_of_two_hosts_sees_is_set_aside_by_both(tmp_path):
  with socket.socket() as found:
    found.bind(('localhost', 0))
    port = found.getsockname()[1]
  directory = str(tmp_path / 'c')
  processes = [
    subprocess.Popen(
      [
        sys.executable,
        '-m',
        'tests.restoring_host',
        str(port),
        str(k),
        directory,
      ],
      cwd=ROOT,
      env=environment.for_devices(2),
      stderr=subprocess.PIPE,
      text=True,
    )
    for k in range(2)
  ]
  said = [process.communicate()[1] for process in processes]
  assert all('restored 1\n' in text for text in said), said
  assert [process.returncode for process in processes] == [0, 0]
  assert os.listdir(tmp_path / 'c_bad') == ['2']


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
  for start_over in (False, True):
    with pytest.raises(
      errors.UserError,
      match=f'c/2 holds .*{said}.*another version or with another optimizer.*'
      'Nothing was moved',
    ):
      restore_params(tmp_path / 'c', tree, start_over=start_over)
  assert sorted(os.listdir(tmp_path / 'c')) == ['1', '2']


def test_a_step_can_be_saved_again_after_a_bad_one(tmp_path):
  write(tmp_path / 'c', steps=(1, 2))
  damage(tmp_path / 'c', 2)
  layout = device_mesh.replicate(device_mesh.make_mesh())
  with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
    checkpoints.restore(template(layout))
    checkpoints.save(2, state(2), {})
  assert int(restore(tmp_path / 'c')[0]['step']) == 2


def test_restores_on_other_devices(tmp_path):
  split = jax.device_put(
    state(5)['w'], device_mesh.row_sharding(device_mesh.make_mesh())
  )
  with checkpoint.Checkpoints(str(tmp_path), 3, 0) as checkpoints:
    checkpoints.save(5, {'step': jnp.int32(5), 'w': split}, {})
  one = jax.sharding.SingleDeviceSharding(jax.devices()[3])
  with checkpoint.Checkpoints(str(tmp_path), 3, 0) as checkpoints:
    found, _ = checkpoints.restore(template(one))
  np.testing.assert_array_equal(found['w'], state(5)['w'])
  assert found['w'].devices() == {jax.devices()[3]}


# In a bucket. Objects are changed as a whole.


def objects(directory, step):
  """Returns the objects with array data of a checkpoint."""
  found = globs.expand(f'{directory}/{step}')
  return [path for path in found if '/d/' in path]


@pytest.mark.slow
def test_a_bucket_holds_checkpoints_as_a_disk_does(remote, capsys):
  marks = write(f'{remote}/c', range(1, 9), keep=2, keep_every=3)
  assert checkpoint_reader.list_steps(f'{remote}/c') == [3, 6, 7, 8]
  found, facts = restore(f'{remote}/c')
  assert int(found['step']) == 8 and facts['fingerprint'] == marks[8]
  np.testing.assert_array_equal(found['w'], state(8)['w'])
  for path in objects(f'{remote}/c', 8):
    rewrite(path, lambda raw: raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:])
  found, _ = restore(f'{remote}/c')
  assert int(found['step']) == 7
  assert 'checkpoint 8 is bad' in capsys.readouterr().out
  assert storage.list_names(f'{remote}/c_bad') == ['8']
  assert checkpoint_reader.list_steps(f'{remote}/c') == [3, 6, 7]
  with checkpoint.Checkpoints(f'{remote}/c', 2, 3) as c:
    c.save(8, state(8), {})
  assert int(restore(f'{remote}/c')[0]['step']) == 8


def rewrite(path, change):
  raw = storage.read(path)
  with storage.replacing(path) as new, open(new, 'wb') as file:
    file.write(change(raw))


@pytest.mark.slow
def test_all_bad_in_a_bucket_is_an_error_unless_told_to_start_over(remote):
  write(f'{remote}/c', (1, 2))
  for step in (1, 2):
    for path in objects(f'{remote}/c', step):
      storage.delete(path)
  with pytest.raises(errors.UserError, match='start_over=True'):
    restore(f'{remote}/c')
  assert checkpoint_reader.list_steps(f'{remote}/c') == [1, 2]
  assert restore(f'{remote}/c', start_over=True) is None
  assert storage.list_names(f'{remote}/c_bad') == ['1', '2']


def test_an_unfinished_save_is_removed_at_once(folder):
  write(f'{folder}/c', (1, 2))
  unfinished = '3.orbax-checkpoint-tmp'
  if storage.is_remote(folder):
    unfinished = '2'
    storage.delete(f'{folder}/c/2/commit_success.txt')
  else:
    os.makedirs(f'{folder}/c/{unfinished}/state')
  with checkpoint.Checkpoints(f'{folder}/c', 3, 0):
    assert unfinished not in storage.list_names(f'{folder}/c')


def test_an_unfinished_save_in_a_bucket_is_no_checkpoint(remote):
  write(f'{remote}/c', (1, 2))
  storage.delete(f'{remote}/c/2/commit_success.txt')
  assert int(restore(f'{remote}/c')[0]['step']) == 1
  write(f'{remote}/c', (2,))
  assert int(restore(f'{remote}/c')[0]['step']) == 2


@pytest.mark.parametrize('what', ['all', 'arrays'])
def test_a_bucket_that_refuses_is_no_damage(ill, remote, what):
  write(f'{remote}/c', (1, 2))
  layout = device_mesh.replicate(device_mesh.make_mesh())
  with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
    ill.only = '/d/' if what == 'arrays' else ''
    ill.status = 403
    with pytest.raises(errors.UserError, match='403') as caught:
      checkpoints.restore(template(layout), start_over=True)
    ill.status = 0
  assert '\n' not in str(caught.value)
  assert storage.list_names(remote) == ['c']
  assert int(restore(f'{remote}/c')[0]['step']) == 2


@pytest.mark.parametrize(('status', 'exit_code'), [(503, 75), (403, 1)])
def test_checkpoints_that_a_bucket_does_not_list_may_be_listed_later(
  ill, remote, status, exit_code
):
  write(f'{remote}/c', (1,))
  ill.status = status
  for read in (
    lambda: checkpoint.Checkpoints(f'{remote}/c', 3, 0),
    lambda: checkpoint_reader.list_unfinished(f'{remote}/c'),
  ):
    with pytest.raises(errors.UserError, match='cannot list the ch') as caught:
      read()
    assert caught.value.exit_code == exit_code


def test_an_unfinished_checkpoint_may_be_removed_later(ill, remote):
  write(f'{remote}/c', (1,))
  storage.delete(f'{remote}/c/1/commit_success.txt')
  ill.only, ill.status = '/c/1/facts', 503  # the first that is deleted
  with pytest.raises(errors.UserError, match='^cannot delete .*503') as caught:
    checkpoint._remove_unfinished(f'{remote}/c')
  assert caught.value.exit_code == errors.MAY_PASS


def test_a_bucket_that_fails_for_a_while_does_not_fail_a_save(ill, remote):
  with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
    checkpoints.save(1, state(1), {})
    ill.status, ill.left = 503, 5
    checkpoints.save(2, state(2), {})
  assert ill.left == 0
  assert int(restore(f'{remote}/c')[0]['step']) == 2


def test_a_save_that_a_bucket_refused_in_the_background_is_not_complete(
  ill, remote
):
  write(f'{remote}/c', (1,))
  with pytest.raises(errors.UserError, match='step 1 is kept'):
    with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
      restore_with(checkpoints)
      assert checkpoints.complete == 1
      ill.only, ill.status = 'commit_success', 403
      save_in_background(checkpoints, 2)
      ill.status = 0
      assert checkpoints.complete == 1
  assert checkpoints.complete == 1


def test_a_save_that_a_bucket_refuses_is_one_line(ill, remote):
  write(f'{remote}/c', (1,))
  with pytest.raises(errors.UserError, match='403') as caught:
    with checkpoint.Checkpoints(f'{remote}/c', 3, 0) as checkpoints:
      ill.status = 403
      checkpoints.save(2, state(2), {})
  assert 'step 1 is kept' in str(caught.value)
  assert '\n' not in str(caught.value)
  ill.status = 0
  assert int(restore(f'{remote}/c')[0]['step']) == 1
