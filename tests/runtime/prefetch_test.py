"""Tests of what is made ahead of its use."""

import functools
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from bert_jax.runtime import prefetch, process_pool
from tests import waiting


def square(t):
  return {'t': np.full(300_000, t * t)}  # more than a pipe holds


def broken_at(t, step):
  if step == t:
    raise KeyError('wrong')
  return step


def stuck_at(t, step):
  if step == t:
    signal.pause()
  return step


@pytest.mark.parametrize('workers', [0, 2])
def test_prefetch_keeps_the_order_and_ends(workers):
  made = [b['t'][-1] for b in prefetch.make_ahead(square, 3, 8, workers)]
  assert made == [9, 16, 25, 36, 49]
  assert list(prefetch.make_ahead(square, 3, 3, workers)) == []
  assert not multiprocessing.active_children()


@pytest.mark.parametrize('workers', [0, 1])
def test_prefetch_raises_where_the_batch_is_awaited(workers):
  batches = prefetch.make_ahead(functools.partial(broken_at, 2), 0, 5, workers)
  assert [next(batches), next(batches)] == [0, 1]
  with pytest.raises(KeyError) as caught:
    next(batches)
  assert not workers or 'in broken_at' in str(caught.value.__cause__)
  assert not multiprocessing.active_children()


@pytest.mark.parametrize('workers', [0, 1])
def test_closing_prefetch_ends_its_threads_and_processes(workers):
  before = threading.active_count()
  # A process that is stuck is not waited for.
  make = functools.partial(stuck_at, 1) if workers else square
  batches = prefetch.make_ahead(make, 0, 9, workers)
  next(batches)
  batches.close()
  assert not multiprocessing.active_children()
  assert threading.active_count() == before


def interrupted(t):
  for number in (signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
  return t


def test_signals_of_the_terminal_are_left_to_the_parent(foreground):
  assert list(process_pool.run(interrupted, [(7,)], 1)) == [7]


def test_a_process_that_is_killed_amid_a_batch_is_an_error():
  batches = prefetch.make_ahead(square, 0, 10**9, 1)
  next(batches)
  for process in multiprocessing.active_children():
    os.kill(process.pid, signal.SIGKILL)
  with pytest.raises(ChildProcessError, match='a process .* died'):
    for _ in batches:
      pass


def parent_of_one(pids):
  batches = prefetch.make_ahead(square, 0, 10**9, 1)
  next(batches)
  [worker] = multiprocessing.active_children()
  pids.send(worker.pid)
  time.sleep(60)


def test_processes_end_when_their_parent_is_killed():
  context = multiprocessing.get_context('spawn')
  pipe, theirs = context.Pipe(duplex=False)
  parent = context.Process(target=parent_of_one, args=(theirs,))
  parent.start()
  pid = pipe.recv()
  parent.kill()
  parent.join()
  waiting.until(lambda: not os.path.exists(f'/proc/{pid}/exe'))
