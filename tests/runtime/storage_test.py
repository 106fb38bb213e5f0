"""Files and folders of both kinds, and what an ill bucket's errors say."""

import math
import os
import pickle
from unittest import mock

import fsspec
import pytest

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.finetuning.readers import table_files
from bert_jax.runtime import bucket, files, storage
from tests import processes


def write(path, content):
  storage.make_folder(os.path.dirname(path))
  with storage.replacing(path) as new, open(new, 'wb') as file:
    file.write(content)


def test_what_is_written_is_read(folder):
  path = os.path.join(folder, 'a', 'x.txt')
  write(path, b'old and long')
  write(path, b'0123456789')
  assert storage.read(path) == b'0123456789'
  assert not storage.create(path, b'one writer')
  storage.write(path, b'shorter')
  assert storage.read(path) == b'shorter'
  storage.write(path, b'0123456789')
  assert storage.get_size(path) == 10
  with storage.open_binary(path) as file:
    file.seek(4)
    assert file.read() == b'456789'
  ranges = [(path, 2, 3), (path, 0, 1), (path, 9, 1)]
  assert list(storage.read_ranges(ranges)) == [b'234', b'0', b'9']
  with pytest.raises(ZeroDivisionError):
    with storage.replacing(path) as new, open(new, 'wb') as file:
      file.write(b'%d' % (1 // 0))
  assert storage.list_names(os.path.dirname(path)) == ['x.txt']
  assert storage.read(path) == b'0123456789'


def test_a_folder_lists_what_is_in_it(folder):
  for name in ('b/y', 'b/deep/z', 'a'):
    write(os.path.join(folder, name), b'12')
  assert storage.list_names(folder) == ['a', 'b']
  assert storage.list_names(os.path.join(folder, 'b')) == ['deep', 'y']
  paths = [os.path.join(folder, name) for name in ('a', 'b', 'c')]
  assert [*map(storage.exists, paths)] == [True, True, False]
  assert [*map(storage.is_folder, paths)] == [False, True, False]
  found = storage.expand(os.path.join(folder, 'b'))
  assert [os.path.relpath(x, folder) for x in found] == ['b/deep/z', 'b/y']
  everything = storage.expand(folder)
  assert storage.expand(os.path.join(folder, '*')) == everything
  if not storage.is_remote(folder):
    for name in ('.git/x', 'b/.y'):
      write(os.path.join(folder, name), b'')
    assert storage.expand(folder) == everything


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(os, 'urandom', lambda size: b'\x12')  # it was guessed
  kept = tmp_path / 'kept'
  kept.write_text('mine')
  (tmp_path / '.x.12.new').symlink_to(kept)
  with pytest.raises(FileExistsError):
    storage.write(str(tmp_path / 'x'), b'theirs')
  assert kept.read_text() == 'mine'


def test_a_file_is_flushed_before_it_has_its_name_and_its_folder_then(
  tmp_path, monkeypatch
):
  there = {}
  monkeypatch.setattr(
    storage,
    'sync',
    lambda path: there.update({path: (tmp_path / 'x').exists()}),
  )
  storage.write(str(tmp_path / 'x'), b'')
  assert [*there.values()] == [False, True] and [*there][1] == str(tmp_path)


def test_what_a_kill_leaves_is_removed_and_nothing_else(tmp_path):
  script = (
    'import os, sys\n'
    'from bert_jax.runtime import storage\n'
    'with storage.replacing(sys.argv[1]): os.kill(os.getpid(), 9)'
  )
  processes.run_code(script, str(tmp_path / 'x'))
  [left] = os.listdir(tmp_path)
  assert left.startswith('.x.')
  for name in ('.y.new', 'x.0123456789abcdef.new', '.hidden'):
    (tmp_path / name).touch()
  storage.remove_unfinished(str(tmp_path))
  assert len(os.listdir(tmp_path)) == 3 and left not in os.listdir(tmp_path)
  storage.remove_unfinished(str(tmp_path / 'nowhere'))


def test_what_is_no_file_is_refused_at_once(tmp_path):
  paths = str(tmp_path / 'pipe.txt'), str(tmp_path / 'device.txt')
  os.mkfifo(paths[0])
  os.symlink('/dev/zero', paths[1])
  for path in paths:
    with pytest.raises(OSError, match='it is a pipe or a device, not a file'):
      storage.read(path)
    for read in (files.read_json, text_files.read_head, table_files.read_text):
      with pytest.raises(
        errors.UserError, match=f'{path}.* is a pipe or a dev'
      ):
        read(path)


def test_what_does_not_exist_is_said_so(folder):
  for read in (storage.read, storage.get_size, storage.list_names):
    with pytest.raises(FileNotFoundError) as caught:
      read(os.path.join(folder, 'nowhere'))
    assert caught.value.strerror == 'No such file or directory'


def test_after_a_kill_one_of_two_folders_has_its_mark(remote, monkeypatch):
  for name in ('a', 'm', 'z/y'):
    write(f'{remote}/old/{name}', b'')
  filesystem, _ = bucket.connect(remote)
  calls = mock.Mock(wraps=filesystem)
  for act in ('cp_file', 'rm_file'):
    monkeypatch.setattr(filesystem, act, getattr(calls, act))
  storage.move_folder(f'{remote}/old', f'{remote}/new', 'm')
  done = [
    (x, path.partition('/old/')[2]) for x, (path, *_), _ in calls.mock_calls
  ]
  assert sorted(done[:2]) == [('cp_file', 'a'), ('cp_file', 'z/y')]
  assert done[2:4] == [('cp_file', 'm'), ('rm_file', 'm')]
  assert sorted(done[4:]) == [('rm_file', 'a'), ('rm_file', 'z/y')]


def test_a_name_that_no_file_can_have_is_not_listed(remote):
  # An object may have any name; a copy would be written elsewhere. Nor is a list
  # taken from a cache: another process wrote these.
  assert not storage.exists(remote)
  _, folder = bucket.connect(remote)
  filesystem = fsspec.filesystem('gs', skip_instance_cache=True)
  for name in ('', '.', '..', '...', 'x'):
    filesystem.pipe_file(f'{folder}/{name}', b'12')
  assert storage.list_names(remote) == ['...', 'x']


def test_names_are_no_patterns(folder):
  others = ('run1/5/x', 'run2/5/x', 'run1/5/y')
  for name in (*others, 'run[12]/5/x', 'run?/5/x', 'run*/5/?', 'run*/5/mark'):
    write(os.path.join(folder, name), name.encode())
  for _ in range(2):  # it need not exist
    storage.delete(os.path.join(folder, 'run[12]', '5'))
  storage.delete(os.path.join(folder, 'run?', '5', 'x'))
  source = os.path.join(folder, 'run*', '5')
  assert storage.list_names(source) == ['?', 'mark']
  storage.move_folder(source, os.path.join(folder, 'bad*', '5'), 'mark')
  found = storage.expand(folder)
  expected = sorted((*others, 'bad*/5/?', 'bad*/5/mark'))
  assert [os.path.relpath(x, folder) for x in found] == expected
  assert storage.read(os.path.join(folder, 'bad*/5/?')) == b'run*/5/?'


def test_urls_are_resolved_without_their_last_slash(emulator):
  assert storage.resolve('gs://some/run/') == 'gs://some/run'
  assert storage.resolve('here') == os.path.join(os.getcwd(), 'here')
  assert storage.count_free('gs://some/run') == math.inf
  for path in ('', 'gs://', 'gs://some', 'gs:///run', 's3://some/run'):
    with pytest.raises(errors.UserError, match='gs://BUCKET/NAME'):
      storage.resolve(path)
  path = 'gs://not-there/x'
  for act in (storage.create, write, storage.write):
    with pytest.raises(OSError, match=f'there is no such bucket: .{path}'):
      act(path, b'')


def test_a_copy_of_an_object_or_a_folder_has_its_name_and_is_deleted(remote):
  with storage.local_copy('not there') as path:  # is its own copy
    assert path == 'not there'
  for name in ('x', 'y', 'deep/z'):
    storage.write(f'{remote}/model/{name}', name.encode())
  with storage.local_copy(f'{remote}/model/x') as path:
    assert os.path.basename(path) == 'x' and storage.read(path) == b'x'
  assert not os.path.exists(path)
  with storage.local_copy(f'{remote}/model/') as path:  # its own files
    assert sorted(os.listdir(path)) == ['x', 'y']
  with pytest.raises(FileNotFoundError), storage.local_copy(f'{remote}/no'):
    pass
  with pytest.raises(errors.UserError, match=f'^{remote}/model/x is empty$'):
    with storage.local_copy(f'{remote}/model/x') as path:
      raise errors.UserError(f'{path} is empty')


def test_a_copy_that_is_refused_leaves_no_file(remote, tmp_path):
  for name in ('good', 'bad'):
    storage.write(f'{remote}/{name}', name.encode())

  def check(name, new):
    if storage.read(new) == b'bad':
      raise errors.UserError('bad')

  with pytest.raises(errors.UserError, match='bad'):
    storage.download_files(remote, str(tmp_path), ['good', 'bad'], check)
  assert os.listdir(tmp_path) == ['good']


_OPERATIONS = {
  'read': lambda path: storage.read(path),
  'write': lambda path: write(path, b'new'),
  'list': lambda path: storage.list_names(os.path.dirname(path)),
  'delete': lambda path: storage.delete(path),
}


@pytest.mark.parametrize(
  ('status', 'says'),
  [
    (401, 'a made-up 401, 401 (run gcloud auth'),
    (403, 'HTTP 403, a made-up 403 (give the account the role Storage'),
    (412, 'FileExistsError'),
    (503, 'HttpError, a made-up 503, 503, after 0 s of attempts'),
  ],
)
@pytest.mark.parametrize('operation', _OPERATIONS)
def test_a_refusal_ends_in_one_line(ill, remote, status, says, operation):
  write(f'{remote}/x', b'new')
  ill.status, ill.left = 503, 3
  _OPERATIONS[operation](f'{remote}/x')  # one that passes is not noticed
  assert ill.left == 0
  ill.status = 0
  write(f'{remote}/x', b'old')
  ill.status, ill.left = status, 1 << 60
  with pytest.raises(OSError) as caught:
    _OPERATIONS[operation](f'{remote}/x')
  text = str(pickle.loads(pickle.dumps(caught.value)))  # in another process
  assert says in text and '\n' not in text and f'{remote}' in text
  # Whoever reads a user's file says that it is the user's mistake.
  assert isinstance(caught.value, PermissionError) == (status in (401, 403))
  ill.status = 0
  assert storage.read(f'{remote}/x') == b'old'


def test_a_bucket_that_hangs_ends_in_one_line(ill, remote, monkeypatch):
  import aiohttp

  filesystem = fsspec.filesystem('gs')
  limits = aiohttp.ClientTimeout(sock_read=0.1)
  monkeypatch.setattr(filesystem, 'requests_timeout', limits)
  ill.status = -1
  with pytest.raises(OSError, match=f'Timeout.*{remote}'):
    storage.read(f'{remote}/x')


def test_a_large_file_is_uploaded_in_parts_and_read_or_refused(ill, remote):
  content = os.urandom(1 << 20) * 9
  write(f'{remote}/x', content)
  assert storage.read(f'{remote}/x') == content
  with storage.open_binary(f'{remote}/x') as file:
    file.read(10)
    ill.status = 403
    with pytest.raises(PermissionError, match='HTTP 403'):
      file.read()


def test_without_its_package_a_url_says_what_to_install(monkeypatch):
  def fail(path):
    raise ImportError('No module named gcsfs')

  monkeypatch.setattr('fsspec.core.url_to_fs', fail)
  with pytest.raises(errors.UserError, match=r"pip install 'bert_jax\[gcs\]'"):
    storage.read('gs://some/x')
