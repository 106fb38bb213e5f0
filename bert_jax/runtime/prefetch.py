"""Prefetching of batches, made ahead in a thread or in processes."""

import collections
import itertools
from collections.abc import Callable, Iterator
from concurrent import futures

from bert_jax.runtime import process_pool

_READ_AHEAD = 4  # batches


def make_ahead(
  make: Callable[[int], dict], first: int, stop: int, workers: int = 0
) -> Iterator[dict]:
  """Yields make(first), ..., make(stop - 1), prefetched.

  Close the iterator (`.close()`) to stop the thread or the processes early.

  Args:
    make: returns a batch. With workers it is pickled, since each process gets
      its own copy: a functools.partial of a module's function or of a method,
      not a lambda.
    workers: processes that make batches; -1 is one per core, 0 uses a thread
      of this process.
  """
  workers = min(process_pool.resolve(workers), stop - first)
  if workers:
    pool = process_pool.make_pool(workers, make)
    make = process_pool.call_held
  else:
    pool = futures.ThreadPoolExecutor(1)
  steps = iter(range(first, stop))
  ready = collections.deque(
    pool.submit(make, t) for t in itertools.islice(steps, _READ_AHEAD + workers)
  )
  try:
    while ready:
      batch = ready.popleft().result()
      ready.extend(pool.submit(make, t) for t in itertools.islice(steps, 1))
      yield batch
  except futures.process.BrokenProcessPool:
    raise ChildProcessError(
      'a process that makes batches died (killed, or out of memory); set '
      'data.loader_workers lower and run the same command again'
    ) from None
  finally:
    if workers:
      process_pool.terminate(pool)
    pool.shutdown(cancel_futures=True)
