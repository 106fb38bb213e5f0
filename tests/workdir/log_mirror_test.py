"""Growing files that are copied to a bucket."""

import os

import pytest

from bert_jax.runtime import storage
from bert_jax.workdir import log
from tests import waiting


def append(folder, name, text):
  path = os.path.join(folder, name)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'a') as file:
    file.write(text)


def test_what_grew_is_uploaded_whole_and_fetched_by_the_next(remote):
  first = log.Mirror(remote, ['log'])
  append(first.folder, 'log', 'one\n')
  append(first.folder, 'deep/events', 'x')
  first.flush()
  append(first.folder, 'log', 'two\n')
  first.close()
  assert storage.read(f'{remote}/log') == b'one\ntwo\n'
  assert storage.read(f'{remote}/deep/events') == b'x'
  assert not os.path.exists(first.folder)
  second = log.Mirror(remote, ['log'])
  append(second.folder, 'log', 'three\n')
  second.close()
  assert storage.read(f'{remote}/log') == b'one\ntwo\nthree\n'


def test_only_what_has_changed_is_uploaded(remote, monkeypatch):
  uploaded = []
  monkeypatch.setattr(
    storage, 'write', lambda path, content: uploaded.append(path)
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
  write, ill = storage.write, [True]

  def may_fail(path, content):
    if ill[0]:
      raise OSError('the bucket is ill')
    write(path, content)

  monkeypatch.setattr(storage, 'write', may_fail)
  found = log.Mirror(remote)
  append(found.folder, 'log', 'one\n')
  waiting.until(lambda: 'warning: the bucket is ill' in capfd.readouterr().err)
  with pytest.raises(OSError, match='the bucket is ill'):
    found.flush()
  ill[0] = False
  waiting.until(lambda: storage.exists(f'{remote}/log'))
  found.close()
