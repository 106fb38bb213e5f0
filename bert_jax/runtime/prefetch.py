"""Prefetching of batches, made ahead in a thread or in processes."""

import collections
import itertools
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures

from bert_jax import errors
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
  workers = process_pool.resolve(workers)
  if not workers:
    return _ahead(make, first, stop)
  return _made_by_processes(make, first, stop, min(workers, stop - first))


def _ahead(make, first, stop, end=lambda: None) -> Iterator[dict]:
  """Yields make(first), ... from a thread; calls `end` before joining it."""
  steps = iter(range(first, stop))
  with futures.ThreadPoolExecutor(1) as pool:
    try:
      ready = collections.deque(
        pool.submit(make, t) for t in itertools.islice(steps, _READ_AHEAD)
      )
      while ready:
        batch = ready.popleft().result()
        ready.extend(pool.submit(make, t) for t in itertools.islice(steps, 1))
        yield batch
    finally:
      end()
      pool.shutdown(cancel_futures=True)


def _made_by_processes(make, first, stop, count) -> Iterator[dict]:
  """Yields make(first), ...; process k makes every count-th from first + k on.

  Each process has its own pipe, so the order needs no bookkeeping, and a
  process that is a batch ahead waits.
  """
  # Not fork: the parent may hold threads of other libraries.
  context = multiprocessing.get_context('spawn')
  processes, pipes = [], []

  def end():
    for process in processes:
      process.terminate()
    for process in processes:
      process.join()

  def receive(t):
    try:
      batch, error = pipes[(t - first) % count].recv()
    except (EOFError, OSError):
      raise ChildProcessError(
        'a process that makes batches died (killed, or out of memory); set '
        'data.loader_workers lower and run the same command again.',
      ) from None
    if error is not None:
      raise error
    return batch

  try:
    for k in range(count):
      pipe, theirs = context.Pipe(duplex=False)
      pipes.append(pipe)
      with theirs:  # close our copy, so that we see EOF when the process dies
        process = context.Process(
          target=_work,
          args=(make, range(first + k, stop, count), theirs),
          daemon=True,
        )
        process.start()
      processes.append(process)
    yield from _ahead(receive, first, stop, end)
  finally:
    end()
    for pipe in pipes:
      pipe.close()


def _work(make, steps: range, pipe):
  """Sends batches; ends when all are sent or the parent has closed the pipe."""
  process_pool.leave_signals_to_parent()  # if it is killed, the pipe breaks
  for t in steps:
    try:
      item = make(t), None
    except (errors.UserError, OSError) as error:
      item = None, error
    except Exception:
      # As text: an exception of a library may not survive pickling.
      item = None, RuntimeError(traceback.format_exc())
    try:
      pipe.send(item)
    except BrokenPipeError:
      return
