"""Files that appear whole or not at all; folders are tested by hf_export."""

import os

import pytest

from bert_jax import errors
from bert_jax.runtime import files


def filled(text):
  def fill(path):
    with open(path, 'w', encoding='utf-8') as f:
      f.write(text)

  return fill


def test_a_file_replaces_the_old_or_leaves_it(tmp_path, monkeypatch):
  path = str(tmp_path / 'new' / 'x')
  files.write_file(path, filled('old'))

  def fail(path):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as m:
    m.setattr(files, 'sync', fail)
    with pytest.raises(errors.UserError, match='No space left'):
      files.write_file(path, filled('new'))
  with open(path, encoding='utf-8') as f:
    assert f.read() == 'old'
  assert os.listdir(tmp_path / 'new') == ['x']
  files.write_file(path, filled('new'))
  with open(path, encoding='utf-8') as f:
    assert f.read() == 'new'


def test_every_file_of_a_folder_is_flushed_before_it_is_named(
  tmp_path, monkeypatch
):
  flushed = []
  monkeypatch.setattr(
    files, 'sync', lambda path: flushed.append(os.path.basename(path))
  )

  def fill(new):
    filled('1')(os.path.join(new, 'a'))
    filled('2')(os.path.join(new, 'b'))

  files.write_folder(str(tmp_path / 'x'), ['a', 'b'], fill)
  assert sorted(flushed[:2]) == ['a', 'b']
  assert flushed[2:] == ['.x.new', tmp_path.name]


def test_urls_are_refused():
  for write in (
    lambda: files.write_file('gs://bucket/x', filled('')),
    lambda: files.write_folder('gs://bucket/x', [], filled('')),
  ):
    with pytest.raises(errors.UserError, match='local folder'):
      write()


def test_json_is_whole_or_absent(tmp_path):
  path = str(tmp_path / 'a.json')
  files.write_json(path, {'a': [1, 'é']})
  assert files.load_json(path) == {'a': [1, 'é']}
  with pytest.raises(TypeError):
    files.write_json(path, {'a': object()})
  assert files.load_json(path) == {'a': [1, 'é']}
