"""Tests of checkpoints."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import device_mesh
from bert_jax.workdir import checkpoint


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
  layout = device_mesh.replicate(device_mesh.make_mesh())
  with checkpoint.Checkpoints(str(directory), 3, 0) as checkpoints:
    return checkpoints.restore(template(layout), **kwargs)


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


def damage(directory, step):
  for path in array_files(directory, step):
    with open(path, 'r+b') as file:
      file.truncate(os.path.getsize(path) // 2)


def test_the_newest_comes_back_bit_for_bit(tmp_path):
  marks = write(tmp_path)
  found, facts = restore(tmp_path)
  assert int(found['step']) == 3
  np.testing.assert_array_equal(found['w'], state(3)['w'])
  assert facts['n'] == 3 and facts['fingerprint'] == marks[3]


def test_nothing_saved_is_none(tmp_path):
  assert restore(tmp_path) is None


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


def write_params(directory, steps=(1, 2)):
  with checkpoint.Checkpoints(str(directory), 3, 0) as c:
    for step in steps:
      # A matrix: Orbax splits it, unlike the moments.
      params = {'dense': {'kernel': jnp.arange(600.0).reshape(20, 30) + step}}
      tree = {'step': jnp.int32(step), 'params': params, 'moments': params}
      c.save(step, tree, {'n': step})


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
    params, facts = checkpoint.read(str(tmp_path), chosen)
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
  assert checkpoint.read(str(tmp_path / 'c'))[1]['step'] == 2
  assert 'checkpoint 3 is bad' in capsys.readouterr().out
  assert contents(tmp_path) == before


def test_read_notices_parameters_of_another_fingerprint(tmp_path):
  write_params(tmp_path / 'c')
  os.rename(tmp_path / 'c' / '2' / 'state', tmp_path / 'state2')
  os.rename(tmp_path / 'c' / '1' / 'state', tmp_path / 'c' / '2' / 'state')
  with pytest.raises(
    errors.UserError, match='step 2: 1 array.* first params/dense/kernel'
  ):
    checkpoint.read(str(tmp_path / 'c'), 2)


def test_read_says_which_steps_there_are(tmp_path):
  with pytest.raises(errors.UserError, match='c does not exist'):
    checkpoint.read(str(tmp_path / 'c'))
  (tmp_path / 'c').mkdir()
  with pytest.raises(errors.UserError, match='holds no checkpoint'):
    checkpoint.read(str(tmp_path / 'c'))
  write_params(tmp_path / 'c')
  with pytest.raises(errors.UserError, match='of step 7; choose one of 1, 2'):
    checkpoint.read(str(tmp_path / 'c'), 7)
