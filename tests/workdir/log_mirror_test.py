"""Growing files that are copied to a bucket."""

import contextlib
import os
import pathlib

import pytest

from bert_jax.runtime import files, storage
from bert_jax.workdir import log
from tests import waiting


def append(folder, name, text):
  path = os.path.join(folder, name)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'a') as file:
    file.write(text)


def test_a_local_directory_is_its_own_mirror(tmp_path):
  found = log.Mirror(str(tmp_path))
  assert found.folder == str(tmp_path)
  found.fetch('metrics.jsonl')
  found.flush()
  found.close()
  assert os.listdir(tmp_path) == []


def test_what_grew_is_uploaded_whole_and_fetched_by_the_next(remote):
  first = log.Mirror(remote)
  first.fetch('log')
  append(first.folder, 'log', 'one\n')
  append(first.folder, 'deep/events', 'x')
  first.flush()
  append(first.folder, 'log', 'two\n')
  first.close()
  assert storage.read(f'{remote}/log') == b'one\ntwo\n'
  assert storage.read(f'{remote}/deep/events') == b'x'
  assert not os.path.exists(first.folder)
  second = log.Mirror(remote)
  second.fetch('log')
  append(second.folder, 'log', 'three\n')
  second.close()
  assert storage.read(f'{remote}/log') == b'one\ntwo\nthree\n'


def test_what_is_half_fetched_is_not_uploaded(remote, monkeypatch):
  files.write_text(f'{remote}/log', 'one\ntwo\n')
  monkeypatch.setattr('bert_jax.workdir.log._SECONDS', 0.01)
  looks = []

  def walk(folder, walk=os.walk):
    looks.append(folder)
    return walk(folder)

  def download_slowly(path, local):
    with open(local, 'w') as file:
      file.write('one\n')
      file.flush()
      before = len(looks)
      with contextlib.suppress(AssertionError):
        waiting.until(lambda: len(looks) > before + 1, seconds=0.3)
      file.write('two\n')

  monkeypatch.setattr(log.os, 'walk', walk)
  monkeypatch.setattr(storage, 'download', download_slowly)
  uploaded = []
  monkeypatch.setattr(
    storage,
    'upload',
    lambda local, path: uploaded.append(pathlib.Path(local).read_text()),
  )
  found = log.Mirror(remote)
  found.fetch('log')
  found.close()
  assert set(uploaded) == {'one\ntwo\n'}


def test_only_what_has_changed_is_uploaded(remote, monkeypatch):
  uploaded = []
  monkeypatch.setattr(
    storage, 'upload', lambda local, path: uploaded.append(path)
  )
  found = log.Mirror(remote)
  append(found.folder, 'a', '1')
  append(found.folder, 'b', '1')
  found.flush()
  append(found.folder, 'b', '2')
  found.close()
  assert uploaded == [f'{remote}/{x}' for x in ('a', 'b', 'b')]


def test_the_thread_uploads_and_its_failure_is_a_warning(
  remote, monkeypatch, capfd
):
  monkeypatch.setattr('bert_jax.workdir.log._SECONDS', 0.02)
  upload, ill = storage.upload, [True]

  def may_fail(local, path):
    if ill[0]:
      raise OSError('the bucket is ill')
    upload(local, path)

  monkeypatch.setattr(storage, 'upload', may_fail)
  found = log.Mirror(remote)
  append(found.folder, 'log', 'one\n')
  waiting.until(lambda: 'warning: the bucket is ill' in capfd.readouterr().err)
  with pytest.raises(OSError, match='the bucket is ill'):
    found.flush()
  ill[0] = False
  waiting.until(lambda: storage.exists(f'{remote}/log'))
  found.close()
