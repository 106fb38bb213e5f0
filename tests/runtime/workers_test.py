"""Work in other processes and threads."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest

from bert_jax import errors
from bert_jax.runtime import workers
from tests import waiting


def interrupted(t):
  for number in (signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
  return t, os.getpid() != os.getppid()


def test_signals_of_the_terminal_are_left_to_the_parent(foreground):
  assert list(workers.run(interrupted, [(7,)], 1)) == [(7, True)]


def killed():
  os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_an_error_that_says_what_to_do():
  with pytest.raises(ChildProcessError, match='set data.workers lower and run'):
    list(workers.run(killed, [()], 1))
  assert not multiprocessing.active_children()


_PARENT = """
import os, time
from bert_jax.runtime import workers
with workers.make_pool(1) as pool:
  print(pool.submit(os.getpid).result(), flush=True)
  time.sleep(60)
"""


def test_processes_end_when_their_parent_is_killed():
  """Within a second: a pool's would wait for ever."""
  with subprocess.Popen(
    [sys.executable, '-c', _PARENT], stdout=subprocess.PIPE, text=True
  ) as parent:
    pid = parent.stdout.readline().strip()
    assert os.path.exists(f'/proc/{pid}/exe')
    parent.kill()
  waiting.until(lambda: not os.path.exists(f'/proc/{pid}/exe'))


@pytest.mark.parametrize(
  ('quota', 'cores'), [('max 100000\n', 8), ('250000 100000\n', 3), ('', 8)]
)
def test_a_container_has_no_more_processes_than_its_share_of_cores(
  quota, cores, tmp_path, monkeypatch
):
  monkeypatch.setattr(workers, 'count_cores', lambda: 8)
  monkeypatch.setattr(workers, '_QUOTA', str(tmp_path / 'cpu.max'))
  assert workers.resolve(workers.ONE_PER_CORE) == 8  # no such file
  (tmp_path / 'cpu.max').write_text(quota)
  assert workers.resolve(workers.ONE_PER_CORE) == cores
  assert (workers.resolve(0), workers.resolve(9)) == (0, 9)


def test_what_is_made_ahead_keeps_its_order_and_raises_where_it_is_awaited():
  made = []

  def make(t):
    made.append(t)
    return 100 // (7 - t)

  batches = workers.make_ahead(make, 3, 9)
  assert [next(batches) for _ in range(4)] == [25, 33, 50, 100]
  waiting.until(lambda: 7 in made)  # before it is asked for
  with pytest.raises(ZeroDivisionError):
    next(batches)
  assert list(workers.make_ahead(make, 3, 3)) == []


def test_what_is_made_ahead_ends_its_thread_when_it_is_closed():
  before, made = threading.active_count(), []
  batches = workers.make_ahead(made.append, 0, 10**9)
  next(batches)
  batches.close()
  assert threading.active_count() == before and len(made) < 9


@pytest.mark.parametrize('error', [OSError('full'), errors.UserError('gone')])
def test_an_error_of_a_disk_or_bucket_is_a_warning_and_calls_go_on(
  capsys, error
):
  calls, often = [], threading.Event()

  def call():
    calls.append(threading.current_thread())
    if len(calls) == 1:
      raise error
    often.set()

  with workers.calling(call, 0.001):
    assert often.wait(10)
  assert capsys.readouterr().err == f'warning: {error}\n'
  assert not calls[0].is_alive()  # no call after the body
