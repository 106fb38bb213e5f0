"""Which files of a model's folder are read, and which links are followed."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

from bert_jax.weight_files import local_files, safetensors_file
from tests.weight_files.hostile import refusal

INDEX = 'model.safetensors.index.json'
FIRST, SECOND = 'model-00001-of-00002.st', 'model-00002-of-00002.st'


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


def test_only_small_files_are_read_whole(folder):
  path = local_files.find_small(folder, 'config.json')
  os.truncate(path, (8 << 20) + 1)
  message = refusal(local_files.find_small, folder, 'config.json')
  assert '8,388,609 bytes' in message


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


@pytest.fixture
def shards(tmp_path):
  """A folder of two files with the tensors a and b, and c."""
  path = str(tmp_path / 'model')
  os.mkdir(path)
  save(path, FIRST, 'a', 'b')
  save(path, SECOND, 'c')
  return path


def save(folder, file, *names):
  """Writes tensors [1], [2] ... of these names."""
  tensors = {name: np.array([ord(name) - 96.0]) for name in names}
  safetensors.numpy.save_file(tensors, os.path.join(folder, file))


def read_by(folder, index):
  with open(os.path.join(folder, INDEX), 'w') as f:
    f.write(index if isinstance(index, str) else json.dumps(index))
  return local_files.read_shards(folder, INDEX, safetensors_file.read)


def read(folder, **weight_map):
  return read_by(folder, {'metadata': {}, 'weight_map': weight_map})


def test_tensors_of_all_files(shards):
  found = read(shards, c=SECOND, a=FIRST, b=FIRST)
  assert {k: v.tolist() for k, v in found.items()} == {
    'a': [1],
    'b': [2],
    'c': [3],
  }


@pytest.mark.parametrize(
  ('weight_map', 'message'),
  [
    ({'a': FIRST, 'b': FIRST, 'c': 'model-3.st'}, 'model-3.st is missing'),
    (
      {'a': FIRST, 'b': FIRST, 'c': SECOND, 'd': SECOND},
      f"{SECOND} is not what {INDEX} lists: it differs in 'd'",
    ),
    ({'a': FIRST, 'b': SECOND, 'c': SECOND}, "it differs in 'b'"),
  ],
)
def test_files_that_are_missing_or_hold_other_tensors(
  shards, weight_map, message
):
  assert message in refusal(lambda: read(shards, **weight_map))


@pytest.mark.parametrize(
  'file',
  [
    *('../outside.st', '/outside.st', 'sub/x.st', './x.st', '..', '', '~'),
    *('x\0.st', 'x\n.st', 'x' * 300, '-x', 5, None, [FIRST]),
  ],
)
def test_names_that_are_no_plain_names(shards, file):
  save(os.path.dirname(shards), 'outside.st', 'c')
  message = refusal(lambda: read(shards, a=FIRST, b=FIRST, c=file))
  assert 'only plain names of files of its own folder' in message


@pytest.mark.parametrize(
  'index',
  [
    *('', '{', '[]', '[' * 100_000, '{}', '{"weight_map": 7}'),
    *('{"weight_map": {}}', ' ' * ((8 << 20) + 1)),
  ],
)
def test_garbage_instead_of_an_index(shards, index):
  assert os.path.join(shards, INDEX) in refusal(read_by, shards, index)
