"""Work in other processes and threads."""

import collections
import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

from bert_jax import errors

ONE_PER_CORE = -1
# Of version 2 of Linux's control groups, as a container sees it.
_QUOTA = '/sys/fs/cgroup/cpu.max'
_READ_AHEAD = 4  # batches


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


# Processes.


def make_pool(count: int) -> futures.ProcessPoolExecutor:
  """Returns a pool of `count` processes, which end with it or with this one."""
  # Not fork: the parent may hold threads of other libraries.
  context = multiprocessing.get_context('spawn')
  return futures.ProcessPoolExecutor(
    count, context, initializer=_start, initargs=(os.getpid(),)
  )


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
    for process in [*(pool._processes or {}).values()]:  # amid their work
      process.terminate()
    raise


def _start(parent: int):
  # What a terminal sends to the parent and its children alike is the parent's.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGHUP, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  end_with(parent)  # for which a pool's workers would wait forever
  os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')


def end_with(parent: int):
  """Ends this process within a second after the process number `parent`."""

  def watch():
    while os.getppid() == parent:
      time.sleep(0.5)
    os._exit(1)

  threading.Thread(target=watch, daemon=True).start()


# Threads.


def make_ahead(
  make: Callable[[int], dict], first: int, stop: int
) -> Iterator[dict]:
  """Yields make(first), ..., make(stop - 1), which a thread makes ahead.

  Close the iterator (`.close()`) to stop the thread early.
  """
  steps, pool = iter(range(first, stop)), futures.ThreadPoolExecutor(1)
  ready = collections.deque(
    pool.submit(make, t) for t in itertools.islice(steps, _READ_AHEAD)
  )
  try:
    while ready:
      batch = ready.popleft().result()
      ready.extend(pool.submit(make, t) for t in itertools.islice(steps, 1))
      yield batch
  finally:
    pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def calling(function: Callable[[], object], seconds: float) -> Iterator[None]:
  """Calls `function` every so many seconds while the body runs.

  An error of a disk or a bucket is a warning, since the next call may succeed.
  """
  done = threading.Event()

  def work():
    while not done.wait(seconds):
      try:
        function()
      except (OSError, errors.UserError) as error:
        print(f'warning: {error}', file=sys.stderr, flush=True)

  thread = threading.Thread(target=work, daemon=True)
  thread.start()
  try:
    yield
  finally:
    done.set()
    thread.join()
