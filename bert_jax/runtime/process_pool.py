"""Work in several processes."""

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

ONE_PER_CORE = -1
# Of version 2 of Linux's control groups, as a container sees it.
_QUOTA = '/sys/fs/cgroup/cpu.max'


def resolve(count: int) -> int:
  """Returns the processes besides this one: -1 is one per core, 0 is none."""
  return min(count_cores(), _read_quota()) if count == ONE_PER_CORE else count


def count_cores() -> int:
  """Returns the cores that this process may run on, over which XLA splits sums."""
  if sys.platform == 'darwin':  # macOS, which cannot restrict a process to some
    return os.cpu_count() or 1
  return len(os.sched_getaffinity(0))


def _read_quota() -> float:
  """Returns how many cores a container may use at a time, rounded up."""
  with contextlib.suppress(OSError, ValueError):
    with open(_QUOTA) as file:  # 'max 100000', or microseconds in a period
      quota, period = file.read().split()
    return math.ceil(int(quota) / int(period))
  return math.inf


def make_pool(
  count: int, held: Callable | None = None
) -> futures.ProcessPoolExecutor:
  """Returns a pool of `count` processes, which end with it or with this one.

  Each gets a copy of `held` when it starts, for `call_held`.
  """
  # Not fork: the parent may hold threads of other libraries.
  context = multiprocessing.get_context('spawn')
  return futures.ProcessPoolExecutor(
    count, context, initializer=_start, initargs=(os.getpid(), held)
  )


def call_held(*args):
  """Calls what `make_pool` was given, in a process of that pool."""
  return _held(*args)


def terminate(pool: futures.ProcessPoolExecutor):
  """Ends the processes of a pool amid their work."""
  for process in [*(pool._processes or {}).values()]:
    process.terminate()


def run(fn: Callable, jobs: Sequence[tuple], count: int) -> Iterator:
  """Yields fn(*job) for each job in order, see `run_in`."""
  with make_pool(count) as pool:
    yield from run_in(pool, fn, jobs)


def run_in(
  pool: futures.ProcessPoolExecutor, fn: Callable, jobs: Sequence[tuple]
) -> Iterator:
  """Yields fn(*job) for each job in order; the pool ends if one fails."""
  try:
    for result in [pool.submit(fn, *job) for job in jobs]:
      yield result.result()
  except futures.process.BrokenProcessPool:
    raise ChildProcessError(
      'a worker process died (killed, or out of memory); set data.workers '
      'lower and run the same command again: finished work is kept.',
    ) from None
  except BaseException:
    terminate(pool)
    raise


_held: Callable | None = None  # of this process of a pool


def _start(parent: int, held: Callable | None):
  global _held
  _held = held
  leave_signals_to_parent()
  end_with(parent)  # for which a pool's workers would wait forever


def leave_signals_to_parent():
  """Ignores what a terminal sends to the parent and its children alike."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGHUP, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with(parent: int):
  """Ends this process within a second after the process number `parent`."""

  def watch():
    while os.getppid() == parent:
      time.sleep(0.5)
    os._exit(1)

  threading.Thread(target=watch, daemon=True).start()
