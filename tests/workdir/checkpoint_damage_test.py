"""Damaged checkpoints are named and set aside; the one before is used."""

import json
import os
import pathlib
import re
import shutil

import pytest

from bert_jax import errors
from bert_jax.parallel import agreement
from bert_jax.workdir import checkpoint, checkpoint_reader
from tests import processes
from tests.workdir.checkpoints import (
  array_files,
  damage,
  make_state,
  make_template,
  restore,
  restore_params,
  truncate,
  write,
  write_params,
)


def test_all_bad_is_an_error_unless_told_to_start_over(tmp_path):
  write(tmp_path / 'c')
  for step in (1, 2, 3):
    damage(tmp_path / 'c', step)
  with pytest.raises(errors.UserError, match='start_over=True'):
    restore(tmp_path / 'c')
  assert checkpoint_reader.list_steps(str(tmp_path / 'c')) == [1, 2, 3]
  assert restore(tmp_path / 'c', start_over=True) is None
  assert sorted(os.listdir(tmp_path / 'c_bad')) == ['1', '2', '3']


def test_a_step_can_be_saved_again_after_a_bad_one(tmp_path):
  write(tmp_path / 'c', steps=(1, 2))
  for bad in (['2'], ['2', '2.2']):
    damage(tmp_path / 'c', 2)
    with checkpoint.Checkpoints(str(tmp_path / 'c'), 3, 0) as checkpoints:
      checkpoints.restore(make_template())
      checkpoints.save(2, make_state(2))
    assert int(restore(tmp_path / 'c')[0]['step']) == 2
    assert sorted(os.listdir(tmp_path / 'c_bad')) == bad


def flip_bit(path):
  raw = bytearray(path.read_bytes())
  raw[len(raw) // 2] ^= 1
  path.write_bytes(raw)


def copy(path, name):
  """Puts what is sound of step 1 there."""
  shutil.rmtree(path / name)
  shutil.copytree(path.parent / '1' / name, path / name)


# What is done to a checkpoint, and what is said of it.
DAMAGE = {
  # In every file, since Orbax leaves some behind that it does not read: which
  # of them is the largest differs from run to run.
  'a bit is flipped': (
    lambda path: [flip_bit(pathlib.Path(x)) for x in array_files(path, '')],
    'Error|differ',
  ),
  # What Orbax does not notice.
  'the arrays are of another step': (
    lambda path: copy(path, 'state'),
    r'array\(s\) differ from their fingerprint, first (moments|params)/dense/k',
  ),
  'every array is cut': (
    lambda path: [truncate(x) for x in array_files(path, '')],
    'byte range .* is not valid for value of size',
  ),
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
  'the facts are brackets': (
    lambda path: (path / 'facts' / 'metadata').write_text('[' * 100_000),
    'one of its JSON files is unreadable',
  ),
  'the facts are of another step': (
    lambda path: copy(path, 'facts'),
    'it says step 1 and .* but is step 2',
  ),
  'the facts are others': (
    lambda path: (path / 'facts' / 'metadata').write_text('[1]'),
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
  for read in (checkpoint_reader.read, restore_params):
    assert read(str(tmp_path / 'c'))[1]['step'] == 1
    output = capsys.readouterr().out
    assert re.search(f'checkpoint 2 is bad: .*({said})', output), output
  assert os.listdir(tmp_path / 'c_bad') == ['2']


def test_sound_arrays_need_no_metadata(tmp_path):
  write_params(tmp_path)
  os.remove(tmp_path / '2' / 'state' / '_METADATA')
  for step in '12':
    (tmp_path / step / '_CHECKPOINT_METADATA').write_text('[' * 100_000)
  assert checkpoint_reader.read(str(tmp_path))[1]['step'] == 2
  assert restore_params(tmp_path)[1]['step'] == 2


@pytest.mark.parametrize('name', ['003', '3.old'])
def test_a_folder_that_is_named_like_no_step_is_left_alone(tmp_path, name):
  write(tmp_path / 'c')
  os.rename(tmp_path / 'c' / '3', tmp_path / 'c' / name)
  assert checkpoint_reader.list_steps(str(tmp_path / 'c')) == [1, 2]
  assert restore(tmp_path / 'c')[1]['step'] == 2
  assert sorted(os.listdir(tmp_path / 'c')) == sorted(['1', '2', name])
  assert os.listdir(tmp_path) == ['c']


_SOUND = json.dumps(['None'])


def test_a_host_whose_disk_fails_keeps_all_from_condemning(
  tmp_path, monkeypatch
):
  write(tmp_path / 'c')
  damage(tmp_path / 'c', 3)
  votes = []

  def gather(own):
    votes.append(own)
    # What is damaged here another host cannot read.
    other = [0, 'EIO in c/3']
    return [own, own if own == _SOUND else json.dumps(other)]

  monkeypatch.setattr(agreement, 'gather_texts', gather)
  with pytest.raises(OSError, match='^on host 1: EIO'):
    restore(tmp_path / 'c')
  # On the files, the facts, the arrays, their shapes.
  assert votes[:2] == votes[3:] * 2 == [_SOUND] * 2
  assert json.loads(votes[2])[0] == 2 and os.listdir(tmp_path) == ['c']


def test_damage_that_another_host_alone_sees_is_named_here(
  tmp_path, monkeypatch, capsys
):
  write(tmp_path / 'c')
  other = [2, 'a shard is cut']
  monkeypatch.setattr(
    agreement, 'gather_texts', lambda own: [own, json.dumps(other)]
  )
  with pytest.raises(errors.UserError, match='1: on host 1: a shard is cut'):
    restore(tmp_path / 'c')
  assert 'checkpoint 3 is bad: on host 1: a shard' in capsys.readouterr().out
  assert os.listdir(tmp_path) == ['c']


@pytest.mark.slow
def test_damage_that_one_of_two_hosts_sees_is_set_aside_by_both(tmp_path):
  said = processes.run_pair('tests.restoring_host', tmp_path / 'c')
  assert all('restored 1\n' in stderr for _, stderr in said), said
  assert os.listdir(tmp_path / 'c_bad') == ['2']
