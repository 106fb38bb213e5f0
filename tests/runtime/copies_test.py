"""Local copies of what lies in a bucket."""

import os

import pytest

from bert_jax import errors
from bert_jax.runtime import copies, files, storage


def test_a_local_path_is_its_own_copy(tmp_path):
  with copies.local_copy(str(tmp_path / 'not there')) as path:
    assert path == str(tmp_path / 'not there')


def test_an_object_keeps_its_name_and_is_deleted(remote):
  files.write_text(f'{remote}/vocab.txt', 'words')
  with copies.local_copy(f'{remote}/vocab.txt') as path:
    assert os.path.basename(path) == 'vocab.txt'
    with open(path) as file:
      assert file.read() == 'words'
  assert not os.path.exists(path)


def test_of_a_folder_its_own_files_are_copied(remote):
  for name in ('x', 'y', 'deep/z'):
    files.write_text(f'{remote}/model/{name}', name)
  with copies.local_copy(f'{remote}/model/') as path:
    assert sorted(os.listdir(path)) == ['x', 'y']


def test_what_does_not_exist_is_not_found(remote):
  with pytest.raises(FileNotFoundError), copies.local_copy(f'{remote}/x'):
    pass


def test_an_error_names_the_original(remote):
  files.write_text(f'{remote}/model', '')
  with pytest.raises(errors.UserError, match=f'^{remote}/model is empty$'):
    with copies.local_copy(f'{remote}/model') as path:
      raise errors.UserError(f'{path} is empty')


def test_a_copy_must_fit(tmp_path, monkeypatch):
  monkeypatch.setattr(
    'shutil.disk_usage', lambda path: type('Usage', (), {'free': 4})
  )
  copies.check_room(4, str(tmp_path))
  with pytest.raises(OSError, match='TMPDIR'):
    copies.check_room(5, str(tmp_path))


def test_a_copy_that_is_refused_leaves_no_file(remote, tmp_path):
  for name in ('good', 'bad'):
    files.write_text(f'{remote}/{name}', name)

  def check(name, new):
    if storage.read(new) == b'bad':
      raise errors.UserError('bad')

  with pytest.raises(errors.UserError, match='bad'):
    copies.download(remote, str(tmp_path), ['good', 'bad'], check)
  assert os.listdir(tmp_path) == ['good']
