"""One writer at a time, on disk and in a bucket."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from bert_jax import errors
from bert_jax.runtime import files, lock, storage
from tests import waiting

_HOLD = """
import sys, time
from bert_jax.runtime import lock
lock._RENEW = 0.2
with lock.exclusive(sys.argv[1]):
  print('held', flush=True)
  time.sleep(60)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(lock, '_RENEW', 0.2)


@pytest.fixture
def holder(folder):
  """Another process that holds the lock."""
  process = subprocess.Popen(
    [sys.executable, '-c', _HOLD, f'{folder}/lock'],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'held\n'
  yield process
  process.kill()
  process.communicate()


def test_it_is_refused_while_another_lives(folder, holder):
  with pytest.raises(errors.UserError, match='writing there') as caught:
    with lock.exclusive(f'{folder}/lock'):
      pass
  assert f'{folder}/lock' in str(caught.value)
  if storage.is_remote(folder):
    assert f'process {holder.pid}, since 20' in str(caught.value)


def test_an_attempt_does_not_wait(folder, holder):
  begin = time.monotonic()
  with lock.attempt(f'{folder}/lock') as held:
    assert not held
  assert time.monotonic() - begin < 2
  holder.kill()
  holder.wait()
  with lock.attempt(f'{folder}/lock') as held:
    assert held


def test_it_is_taken_over_when_its_holder_was_killed(folder, holder):
  holder.send_signal(signal.SIGKILL)
  holder.wait()
  begin = time.monotonic()
  with lock.exclusive(f'{folder}/lock'):
    pass
  assert time.monotonic() - begin < 5


def hold_elsewhere(path, **more):
  """Leaves a lock as another machine would."""
  own = {**lock._describe_self(), 'host': 'pod-3', 'process': 1, **more}
  files.write_text(f'{path}/7', json.dumps(own))


def test_a_holder_on_another_machine_is_gone_when_it_stops_renewing(
  remote, monkeypatch, capsys
):
  monkeypatch.setattr(lock, '_GONE', 1.0)
  hold_elsewhere(f'{remote}/lock')
  with lock.exclusive(f'{remote}/lock'):
    assert storage.list_names(f'{remote}/lock') == ['8']
  assert (
    'held by pod-3, process 1, which renewed it 0 s' in capsys.readouterr().out
  )


def test_who_looked_before_others_came_and_went_does_not_hold_it(
  remote, monkeypatch
):
  path, numbers = f'{remote}/lock', lock._list
  hold_elsewhere(path, released=True)
  looks = []

  def look(path):
    looks.append(numbers(path))
    if len(looks) == 1:  # then two hold it, and the second tidies up
      storage.delete(f'{path}/7')
      own = {**lock._describe_self(), 'released': True}
      files.write_text(f'{path}/9', json.dumps(own))
    return looks[-1]

  monkeypatch.setattr(lock, '_list', look)
  with lock.exclusive(path):
    assert storage.list_names(path) == ['10']


def test_a_list_that_is_older_than_the_lock_is_no_error(remote, monkeypatch):
  monkeypatch.setattr(storage, 'list_names', lambda path: [])
  with lock.exclusive(f'{remote}/lock'):
    assert storage.exists(f'{remote}/lock/1')


def test_a_holder_that_released_it_is_not_waited_for(remote, capsys):
  hold_elsewhere(f'{remote}/lock', released=True)
  with lock.exclusive(f'{remote}/lock'):
    pass
  assert not capsys.readouterr().out


@pytest.mark.parametrize(
  'content', ['', '{', '[1]', '{"host": 3}', '{"since": "x"}', '\x00\x81']
)
def test_a_damaged_object_is_waited_for_and_then_taken_over(
  remote, monkeypatch, capsys, content
):
  monkeypatch.setattr(lock, '_GONE', 0.5)
  files.write_text(f'{remote}/lock/7', content)
  with lock.exclusive(f'{remote}/lock'):
    assert storage.list_names(f'{remote}/lock') == ['8']
  assert 'is held by an unknown host, process 0' in capsys.readouterr().out


def test_a_process_number_proves_death_on_its_own_machine_alone(monkeypatch):
  own = lock._describe_self()
  gone = {**own, 'process': 1 << 30}
  assert lock._is_dead(gone) and not lock._is_dead(own)
  assert not lock._is_dead({**gone, 'host': 'pod-3'})
  assert not lock._is_dead({**gone, 'machine': 'x'})
  monkeypatch.setattr(lock, '_identify_machine', str)  # not on Linux
  assert not lock._is_dead({**lock._describe_self(), 'process': 1 << 30})


def test_of_many_at_once_one_gets_it(remote, monkeypatch):
  hold_elsewhere(f'{remote}/lock', released=True)
  inside, most, refused = [], [], []

  def take():
    try:
      with lock.exclusive(f'{remote}/lock'):
        inside.append(1)
        most.append(len(inside))
        time.sleep(1.5)
        inside.pop()
    except errors.UserError:
      refused.append(1)

  threads = [threading.Thread(target=take) for _ in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert max(most) == 1 and len(most) + len(refused) == 6 and refused


@pytest.mark.parametrize('newest', [2, 3])  # 3 has tidied up 2
def test_a_process_that_was_taken_over_ends(remote, newest):
  path = f'{remote}/lock'
  process = subprocess.Popen(
    [sys.executable, '-c', _HOLD, path],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  process.stdout.readline()
  files.write_text(f'{path}/{newest}', '{}')
  assert process.wait(10) == 1
  assert 'taken over by another process' in process.communicate()[1]


def test_a_full_local_disk_does_not_stop_the_renewal(remote, monkeypatch):
  def fail(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with lock.exclusive(f'{remote}/lock'):
    monkeypatch.setattr(tempfile, 'mkdtemp', fail)
    before = storage.get_time(f'{remote}/lock/1')
    waiting.until(lambda: storage.get_time(f'{remote}/lock/1') > before)
  assert json.loads(storage.read(f'{remote}/lock/1'))['released']


@pytest.mark.parametrize('where', ['_list', '_write'])
def test_an_error_of_the_system_does_not_stop_the_renewal(
  remote, monkeypatch, capsys, where
):
  original, failed = getattr(lock, where), []

  def fail(*args):
    failed.append(args)
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

  with lock.exclusive(f'{remote}/lock'):
    monkeypatch.setattr(lock, where, fail)
    waiting.until(lambda: failed)
    monkeypatch.setattr(lock, where, original)
    before = storage.get_time(f'{remote}/lock/1')
    waiting.until(lambda: storage.get_time(f'{remote}/lock/1') > before)
    monkeypatch.setattr(lock, '_write', fail)
  assert 'warning: [Errno 24] Too many open files' in capsys.readouterr().err


def test_a_local_lock_may_be_waited_for(tmp_path):
  path, order = str(tmp_path / 'lock'), []

  def wait():
    with lock.exclusive(path, wait=True):
      order.append('second')

  with lock.exclusive(path):
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    order.append('first')
  thread.join()
  assert order == ['first', 'second'] and os.path.exists(path)


@pytest.mark.parametrize('code', [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_one_line(tmp_path, monkeypatch, code):
  def refuse(file, operation):
    raise OSError(code, os.strerror(code))

  monkeypatch.setattr(lock.fcntl, 'flock', refuse)
  path = str(tmp_path / 'lock')
  said = f'cannot lock {path}: {os.strerror(code)}; use a directory on a file'
  with pytest.raises(errors.UserError, match=said):
    with lock.exclusive(path):
      pass
