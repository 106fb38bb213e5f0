"""Growing files that are copied to a bucket."""

import os

from bert_jax.runtime import storage
from bert_jax.workdir import log


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
