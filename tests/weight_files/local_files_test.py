"""Which links of a model's folder are followed."""

import os

import pytest

from bert_jax.weight_files import local_files
from tests.weight_files.hostile import refusal


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / 'model'
  path.mkdir()
  (path / 'config.json').write_text('{}')
  (tmp_path / 'outside').write_text('{}')
  return str(path)


def link(target, folder, name='linked'):
  path = os.path.join(folder, name)
  if os.path.lexists(path):
    os.remove(path)
  os.symlink(target, path)


def test_files_and_links_within_the_folder(folder):
  path = os.path.join(folder, 'config.json')
  assert local_files.find(folder, 'config.json') == path
  assert local_files.find(folder, 'absent') is None
  for target in ('config.json', path, '../model/config.json'):
    link(target, folder)
    assert local_files.find(folder, 'linked') == path


def test_folder_that_is_itself_a_link(folder, tmp_path):
  os.symlink(folder, tmp_path / 'alias')
  found = local_files.find(str(tmp_path / 'alias'), 'config.json')
  assert found == os.path.join(folder, 'config.json')


def test_links_that_lead_out(folder, tmp_path):
  sibling = tmp_path / 'model2'
  sibling.mkdir()
  (sibling / 'x').write_text('')
  os.mkdir(os.path.join(folder, 'sub'))
  (tmp_path / 'model' / 'sub' / 'x').write_text('')
  for target in (
    *('../outside', str(tmp_path / 'outside'), '../model2/x', '../absent'),
    *('/etc/passwd', '/dev/zero', 'sub/x', 'sub/../../outside'),
  ):
    link(target, folder)
    message = refusal(local_files.find, folder, 'linked')
    assert 'is a link that leads out of the folder' in message
    assert f'cp -rL {folder} NEW' in message


def test_links_in_circles_and_to_nothing(folder):
  link('linked', folder)
  assert 'cannot read' in refusal(local_files.find, folder, 'linked')
  link('absent', folder)
  assert 'cannot read' in refusal(local_files.find, folder, 'linked')
  link('.', folder)
  refusal(local_files.find, folder, 'linked')


def test_cache_of_hugging_face(tmp_path):
  """snapshots/REVISION/NAME links to ../../blobs/HASH of the same model."""
  for model in ('models--a', 'models--b'):
    (tmp_path / model / 'blobs').mkdir(parents=True)
    (tmp_path / model / 'blobs' / '5e1f').write_text('{}')
    (tmp_path / model / 'secret').write_text('{}')
  snapshot = tmp_path / 'models--a' / 'snapshots' / 'c0ffee'
  snapshot.mkdir(parents=True)
  folder = str(snapshot)
  link('../../blobs/5e1f', folder)
  blob = str(tmp_path / 'models--a' / 'blobs' / '5e1f')
  assert local_files.find(folder, 'linked') == blob
  for target in ('../../secret', '../../../models--b/blobs/5e1f'):
    link(target, folder)
    assert 'leads out' in refusal(local_files.find, folder, 'linked')
  # No other folder may link to the blobs, or into a blobs of its own.
  elsewhere = tmp_path / 'models--a' / 'other' / 'c0ffee'
  elsewhere.mkdir(parents=True)
  link('../../blobs/5e1f', str(elsewhere))
  assert 'leads out' in refusal(local_files.find, str(elsewhere), 'linked')


def test_pipes_and_folders_are_not_files(folder):
  """A pipe would be waited for without end."""
  os.mkfifo(os.path.join(folder, 'pipe'))
  os.mkdir(os.path.join(folder, 'folder'))
  for name in ('pipe', 'folder'):
    assert 'is not a regular file' in refusal(local_files.find, folder, name)


def test_only_small_files_are_read_whole(folder):
  path = os.path.join(folder, 'config.json')
  local_files.check_small(folder)
  os.truncate(path, 8 << 20)
  local_files.check_small(folder)
  os.truncate(path, (8 << 20) + 1)
  assert '8,388,609 bytes' in refusal(local_files.check_small, folder)
