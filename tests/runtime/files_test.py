"""Files and folders that appear whole or not at all."""

import os

import pytest

from bert_jax import errors
from bert_jax.runtime import disk, files, storage


def filled(text):
  def fill(path):
    with open(path, 'w', encoding='utf-8') as f:
      f.write(text)

  return fill


def test_json_has_letters_as_they_are(tmp_path):
  value = {'뉴스': 'é\ud83d'}  # half an emoji
  files.write_json(str(tmp_path / 'x'), value)
  assert '"뉴스": "é\\ud83d"' in (tmp_path / 'x').read_text('utf-8')
  assert files.load_json(str(tmp_path / 'x')) == value


def test_a_file_replaces_the_old_or_leaves_it(tmp_path, monkeypatch):
  path = str(tmp_path / 'new' / 'x')
  files.write_file(path, filled('old'))

  def fail(path):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as m:
    m.setattr(disk, 'sync', fail)
    with pytest.raises(OSError, match='cannot write .*No space left'):
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
    disk, 'sync', lambda path: flushed.append(os.path.basename(path))
  )

  def fill(new):
    filled('1')(os.path.join(new, 'a'))
    filled('2')(os.path.join(new, 'b'))

  files.write_folder(str(tmp_path / 'x'), ['a', 'b'], fill)
  assert sorted(flushed[:2]) == ['a', 'b']
  assert flushed[2:] == ['.x.new', tmp_path.name]


def test_a_folder_replaces_the_old_or_leaves_it(tmp_path):
  path = tmp_path / 'x'

  def write(text, error=None):
    def fill(new):
      filled(text)(os.path.join(new, 'a'))
      if error:
        raise error

    files.write_folder(str(path), ['a'], fill)

  def check(text):
    assert (path / 'a').read_text() == text and os.listdir(tmp_path) == ['x']

  write('old')
  with pytest.raises(OSError, match='No space left'):
    write('new', OSError(28, 'No space left on device'))
  check('old')
  # As after a kill between the two renames, with a second kill to come.
  path.rename(tmp_path / '.x.old')
  (tmp_path / '.x.new').mkdir()
  with pytest.raises(KeyboardInterrupt):
    write('new', KeyboardInterrupt())
  check('old')
  write('new')
  check('new')
  (path / 'thesis.tex').touch()
  with pytest.raises(errors.UserError, match='thesis.tex'):
    write('other')
  assert (path / 'thesis.tex').exists()


def test_a_folder_in_a_bucket_is_replaced(remote, monkeypatch):
  allowed = ['config.json', 'old', 'weights']

  def fill(*names):
    def write(new):
      for name in names:
        filled(name)(os.path.join(new, name))

    return write

  files.write_folder(remote, allowed, fill('config.json', 'old', 'weights'))
  assert storage.list_names(remote) == allowed
  files.write_folder(remote, allowed, fill('weights', 'config.json'))
  assert storage.list_names(remote) == ['config.json', 'weights']

  with monkeypatch.context() as m:  # dies in the middle
    m.setattr(storage, 'upload', lambda local, path: 1 // 0)
    with pytest.raises(ZeroDivisionError):
      files.write_folder(remote, allowed, fill('weights', 'config.json'))
  assert not storage.exists(f'{remote}/config.json')
  files.write_file(f'{remote}/mine', filled(''))
  with pytest.raises(errors.UserError, match='holds mine, which an export'):
    files.write_folder(remote, allowed, fill('weights'))


def test_json_in_a_bucket_that_is_ill_is_no_wrong_path(ill, remote):
  ill.status = 503
  with pytest.raises(OSError, match='cannot read .* a made-up 503') as caught:
    files.read_json(f'{remote}/x.json')
  assert errors.get_exit_code(caught.value) == errors.OTHER
  assert 'right path' not in str(caught.value)


def test_what_json_has_no_number_for_is_not_written(tmp_path):
  with pytest.raises(ValueError, match='not JSON compliant'):
    files.write_json(str(tmp_path / 'a.json'), {'loss': float('nan')})
  assert not list(tmp_path.iterdir())
