"""Files and folders of results."""

import os
from unittest import mock

import pytest

from bert_jax import errors
from bert_jax.runtime import files, storage


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
    m.setattr(storage, 'sync', fail)
    with pytest.raises(OSError, match='cannot write .*No space left'):
      files.write_file(path, filled('new'))
  with open(path, encoding='utf-8') as f:
    assert f.read() == 'old'
  assert os.listdir(tmp_path / 'new') == ['x']
  files.write_file(path, filled('new'))
  with open(path, encoding='utf-8') as f:
    assert f.read() == 'new'


def fill(*names):
  def write(new):
    for name in names:
      filled(name)(os.path.join(new, name))

  return write


ALLOWED = ['a', 'config.json', 'weights']


def test_every_file_of_a_folder_is_flushed_before_it_is_in_place(
  tmp_path, monkeypatch
):
  flushed = []
  monkeypatch.setattr(storage, 'sync', flushed.append)
  files.write_folder(str(tmp_path / 'x'), ALLOWED, fill('weights', 'a'))
  new = f'{tmp_path}/.x.new'
  assert sorted(flushed[:2]) == [f'{new}/a', f'{new}/weights']
  assert flushed[2:] == [f'{new}/', str(tmp_path)]


def test_a_folder_is_replaced_when_the_new_one_is_complete(folder, monkeypatch):
  path = os.path.join(folder, 'x')

  def fail(new):
    fill('weights')(new)
    raise OSError(28, 'No space left on device')

  files.write_folder(path, ALLOWED, fill('a', 'config.json', 'weights'))
  with pytest.raises(OSError, match='No space left'):
    files.write_folder(path, ALLOWED, fail)
  assert storage.list_names(path) == ALLOWED
  assert storage.list_names(folder) == ['x']
  files.write_folder(path, ALLOWED, fill('weights', 'config.json'))
  assert storage.list_names(path) == ['config.json', 'weights']
  storage.write(f'{path}/thesis.tex', b'')
  with pytest.raises(errors.UserError, match='holds thesis.tex, which an exp'):
    files.write_folder(path, ALLOWED, fill('weights'))
  assert storage.exists(f'{path}/thesis.tex')


def test_a_model_is_not_lost_while_another_takes_its_place(
  tmp_path, monkeypatch
):
  path, old = f'{tmp_path}/x', f'{tmp_path}/.x.old'
  files.write_folder(path, ALLOWED, fill(*ALLOWED))
  put = {name: getattr(os, name) for name in ('rename', 'replace')}

  def fail(source, target):
    if '.x.new' in source:
      raise OSError(28, 'No space left on device')
    put['rename'](source, target)

  with monkeypatch.context() as m:
    for name in put:
      m.setattr(os, name, fail)
    with pytest.raises(OSError, match='No space left'):
      files.write_folder(path, ALLOWED, fill('weights'))
  assert os.listdir(tmp_path) == ['x']
  assert storage.list_names(path) == ALLOWED
  # A kill between the two renames, and one while a new folder was filled.
  os.rename(path, old)
  os.mkdir(f'{tmp_path}/.x.new')
  with pytest.raises(ZeroDivisionError):
    files.write_folder(path, ALLOWED, lambda new: 1 / 0)
  assert os.listdir(tmp_path) == ['x']
  assert storage.list_names(path) == ALLOWED
  os.mkdir(old)  # a kill while the old one was deleted
  files.write_folder(path, ALLOWED, fill('weights'))
  assert os.listdir(tmp_path) == ['x']
  assert storage.list_names(path) == ['weights']


def test_a_model_in_a_bucket_loses_its_config_first_and_gets_it_last(
  remote, monkeypatch
):
  path = os.path.join(remote, 'x')
  files.write_folder(path, ALLOWED, fill(*ALLOWED))
  calls = mock.Mock()
  for name in 'delete', 'upload':
    calls.attach_mock(mock.Mock(wraps=getattr(storage, name)), name)
    monkeypatch.setattr(storage, name, getattr(calls, name))
  files.write_folder(path, ALLOWED, fill(*ALLOWED))
  names = [os.path.basename(x.args[-1]) for x in calls.mock_calls]
  assert len(names) == 6 and names[0] == names[-1] == 'config.json'
  assert storage.list_names(path) == ALLOWED


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
