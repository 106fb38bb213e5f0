"""One writer at a time, on disk and in a bucket."""

import errno
import os
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest

from bert_jax import errors
from bert_jax.runtime import files, lock, storage
from tests import waiting

_HOLD = """
import sys, time
from bert_jax.runtime import lock
lock._PERIOD = 0.2
with lock.exclusive(sys.argv[1]):
  print('held', flush=True)
  time.sleep(60)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(lock, '_PERIOD', 0.2)


def test_it_is_refused_while_its_holder_lives_and_taken_over_then(folder):
  path = f'{folder}/lock'
  holder = subprocess.Popen(
    [sys.executable, '-c', _HOLD, path], stdout=subprocess.PIPE, text=True
  )
  assert holder.stdout.readline() == 'held\n'
  with pytest.raises(errors.UserError, match='writing there') as caught:
    with lock.exclusive(path):
      pass
  assert path in str(caught.value)
  if storage.is_remote(folder):
    assert f'process {holder.pid}, since ' in str(caught.value)
  with lock.attempt(path) as held:
    assert not held
  holder.kill()
  holder.communicate()
  begin = time.monotonic()
  with lock.attempt(path) as held:
    assert held
  assert time.monotonic() - begin < 5


def hold_elsewhere(path, content='pod-3, process 1, since noon\nid\n1'):
  """Leaves a lock as another machine would."""
  files.write_text(f'{path}/7', content)


def test_a_holder_on_another_machine_is_gone_when_it_stops_writing(
  remote, monkeypatch, capsys
):
  monkeypatch.setattr(lock, '_GONE', 1.0)
  hold_elsewhere(f'{remote}/lock')
  with lock.attempt(f'{remote}/lock') as held:  # it may live
    assert not held
  with lock.exclusive(f'{remote}/lock'):
    assert storage.list_names(f'{remote}/lock') == ['8']
    with lock.attempt(f'{remote}/lock') as held:
      assert not held
  said = f'{remote}/lock is held by pod-3, process 1, since noon; waiting for'
  assert said in capsys.readouterr().out


def test_a_released_lock_is_not_waited_for_nor_a_stale_list_believed(
  remote, monkeypatch, capsys
):
  path, numbers = f'{remote}/lock', lock._list
  hold_elsewhere(path, 'released')
  looks = []

  def look(path):
    looks.append(numbers(path))
    if len(looks) == 1:  # then two hold it, and the second tidies up
      storage.delete(f'{path}/7')
      files.write_text(f'{path}/9', 'released')
    return looks[-1]

  monkeypatch.setattr(lock, '_list', look)
  with lock.exclusive(path):
    assert storage.list_names(path) == ['10']
  assert not capsys.readouterr().out


def test_a_process_number_proves_death_on_its_own_machine_alone(monkeypatch):
  def is_dead(machine, process):
    return lock._is_dead(f'host\n{machine}\n{process}\nid'.encode())

  here, gone = lock._identify_machine(), 1 << 30
  assert is_dead(here, gone) and not is_dead(here, os.getpid())
  assert not is_dead('x', gone)
  monkeypatch.setattr(lock, '_identify_machine', str)  # not on Linux
  assert not is_dead('', gone)


def test_of_many_at_once_one_gets_it(remote):
  hold_elsewhere(f'{remote}/lock', 'released')
  inside, most, refused = [], [], []

  def take():
    try:
      with lock.exclusive(f'{remote}/lock'):
        inside.append(1)
        most.append(len(inside))
        time.sleep(1)
        inside.pop()
    except errors.UserError:
      refused.append(1)

  threads = [threading.Thread(target=take) for _ in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert max(most) == 1 and len(most) + len(refused) == 6 and refused


def test_a_process_that_was_taken_over_ends(remote, monkeypatch, capsys):
  codes = []
  monkeypatch.setattr(lock.os, '_exit', codes.append)
  with lock.exclusive(f'{remote}/lock'):
    files.write_text(f'{remote}/lock/3', '{}')  # which has tidied up 2
    waiting.until(lambda: codes)
  assert codes[0] == 1 and 'error: another took ' in capsys.readouterr().err


def test_a_local_lock_may_be_waited_for(tmp_path):
  path, order = str(tmp_path / 'lock'), []

  def wait():
    with lock.exclusive(path, wait=True):
      order.append('second')

  with lock.exclusive(path):
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    order.append('first')
  thread.join()
  assert order == ['first', 'second'] and os.path.exists(path)


def test_a_file_system_without_locks_is_one_line(tmp_path, monkeypatch):
  refuse = mock.Mock(side_effect=OSError(errno.ENOLCK, 'No locks available'))
  monkeypatch.setattr(lock.fcntl, 'flock', refuse)
  path = str(tmp_path / 'lock')
  said = f'cannot lock {path}: No locks available; use a directory on'
  with pytest.raises(errors.UserError, match=said):
    with lock.exclusive(path):
      pass
