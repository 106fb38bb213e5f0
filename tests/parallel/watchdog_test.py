"""Tests of how processes see one another."""

import contextlib
import os

import pytest

from bert_jax import errors
from bert_jax.parallel import distributed, watchdog


def two(directory):
  hosts = [watchdog._Hosts(str(directory), k, 2) for k in range(2)]
  for one in hosts:
    one.beat()
  return hosts


def test_a_host_that_beats_is_not_missing(tmp_path):
  first, second = two(tmp_path)
  for _ in range(3 * watchdog._MISSES):
    second.beat()
    assert first.missing() is None


def test_a_silent_host_is_named(tmp_path):
  first, _ = two(tmp_path)
  looks = [first.missing() for _ in range(1 + watchdog._MISSES)]
  assert looks[:-1] == [None] * watchdog._MISSES
  assert looks[-1].startswith('host 1 (')
  assert 'gave no sign of life for 16 s' in looks[-1]


def test_a_host_that_wakes_up_is_not_missing(tmp_path):
  first, second = two(tmp_path)
  for _ in range(watchdog._MISSES):
    first.missing()
  second.beat()
  assert first.missing() is None


def test_the_ring_closes(tmp_path):
  _, second = two(tmp_path)
  looks = [second.missing() for _ in range(1 + watchdog._MISSES)]
  assert looks[-1].startswith('host 0 (')


def test_all_learn_of_the_first_failure(tmp_path):
  first, second = two(tmp_path)
  assert first.failed() is None
  assert second.fail('host 1: the disk is full')
  assert not first.fail('host 0: lost host 1')
  assert first.failed() == second.failed() == 'host 1: the disk is full'


def test_stacks_show_what_every_host_does(tmp_path):
  first, _ = two(tmp_path)
  found = first.stacks()
  assert found.count('test_stacks_show_what_every_host_does') == 2
  assert '--- host 0 (' in found and '--- host 1 (' in found


def test_one_process_writes_nothing(tmp_path):
  with watchdog.watch_hosts(str(tmp_path)):
    pass
  with contextlib.suppress(KeyError):
    with watchdog.watch_hosts(str(tmp_path)):
      raise KeyError
    pytest.fail('the error was swallowed')
  assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_left_where_it_does_no_harm(
  tmp_path, monkeypatch
):
  """As NFS keeps a file that another host has open."""
  remove = os.remove

  def refuse(path):
    if '.nfs' in path:
      raise OSError(16, 'Device or resource busy')
    remove(path)

  monkeypatch.setattr(os, 'remove', refuse)
  for name in ('.nfs0001', 'failed', 'run', '0'):
    (tmp_path / name).write_text('of an earlier run')
  watchdog._check_shared(str(tmp_path))
  assert sorted(os.listdir(tmp_path)) == ['.nfs0001', 'run']
  assert (tmp_path / 'run').read_bytes() != b'of an earlier run'


def test_an_old_failure_that_stays_is_an_error(tmp_path, monkeypatch):
  def refuse(path):
    raise PermissionError(13, 'Permission denied')

  monkeypatch.setattr(os, 'remove', refuse)
  (tmp_path / 'failed').write_text('of an earlier run')
  with pytest.raises(errors.UserError, match=r'host 0 .* \(Permission denied'):
    watchdog._check_shared(str(tmp_path))


def test_the_others_hear_of_a_directory_that_cannot_be_made(
  tmp_path, monkeypatch
):
  """Host 0 joins them before it raises."""
  (tmp_path / 'file').touch()
  heard = []
  monkeypatch.setattr(
    distributed, 'find_largest', lambda x: heard.append(x) or x
  )
  with pytest.raises(errors.UserError, match='host 0 cannot write to'):
    watchdog._check_shared(str(tmp_path / 'file' / 'hosts'))
  assert heard == [True]
  monkeypatch.setattr(distributed, 'is_first', lambda: False)
  monkeypatch.setattr(distributed, 'find_largest', lambda x: 1)
  with pytest.raises(errors.UserError, match='host 0 cannot write to'):
    watchdog._check_shared(str(tmp_path))


class Ended(BaseException):
  pass


class Never:
  def wait(self, seconds):
    return False


def end(message, code):
  raise Ended(message)


def test_a_watchdog_that_fails_ends_the_run_and_names_its_host(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(watchdog, '_end', end)
  first, second = two(tmp_path)
  monkeypatch.setattr(first, 'missing', lambda: 1 / 0)
  with pytest.raises(Ended, match='host 0: its watchdog failed: ZeroDiv'):
    watchdog._watch(first, Never())
  assert 'Traceback' in capsys.readouterr().err
  with pytest.raises(Ended, match='host 0: its watchdog failed: ZeroDiv'):
    watchdog._watch(second, Never())


def test_a_file_system_that_does_not_answer_for_a_while_is_no_failure(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(watchdog, '_end', end)
  first, _ = two(tmp_path)
  looks = iter([OSError(5, 'Input/output error'), ValueError('enough')])

  def beat():
    raise next(looks)

  monkeypatch.setattr(first, 'beat', beat)
  with pytest.raises(Ended, match='ValueError: enough'):
    watchdog._watch(first, Never())
