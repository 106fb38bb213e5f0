"""The order of the data is arithmetic: row r of batch t, for any r and t.

Nothing is remembered between batches, so a checkpoint holds no state of the
data, and any host can read any rows.
"""

import dataclasses
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator

import numpy as np

from bert_jax import errors
from bert_jax.corpus import files as files_lib
from bert_jax.data import hashing, manifest, records
from bert_jax.runtime import progress

_READ_AHEAD = 4  # batches


@dataclasses.dataclass(frozen=True)
class Split:
  """The records of one split and length.

  Attributes:
    reader: random access to the records.
    length: tokens of a row, S.
  """

  reader: records.Reader
  length: int


def open_split(
  directory: str, split: str, length: int, skip_corrupt: bool = False
) -> Split:
  """Opens prepared data.

  Names, sizes and record counts are compared with the manifest; contents are
  checked record by record as they are read, and all at once by `verify`.

  Args:
    directory: output of `prepare`.
    split: 'train' or 'heldout'.
    length: a length that it was prepared for.
    skip_corrupt: see `records.Reader`.

  Raises:
    errors.UserError: if the files are not those of the manifest.
  """
  found = manifest.read(directory)
  files = [
    s['files'].get(str(length)) for s in found['shards'] if s['split'] == split
  ]
  if None in files or not files:
    raise errors.UserError(
      f'{directory} was not prepared for length {length}, only for '
      f'{", ".join(found["lengths"])}.'
    )
  reader = records.Reader(
    [_check_size(directory, file) for file in files],
    found['recipe']['vocab_size'],
    [file['records'] for file in files],
    skip_corrupt,
  )
  return Split(reader, length)


def verify(directory: str) -> int:
  """Compares every file of prepared data with its manifest, to the last bit.

  Returns:
    How many bytes of records were compared.

  Raises:
    errors.UserError: naming the first file that is not as it was made.
  """
  found = manifest.read(directory)
  files = [f for s in found['shards'] for f in s['files'].values()]
  total = sum(f['bytes'] for f in files)
  _check_sum(
    os.path.join(directory, 'vocab.txt'), found['vocab_sha256'], directory
  )
  with progress.Progress(total, 'B', 'verifying') as bar:
    for file in files:
      path = _check_size(directory, file)
      _check_sum(path, file['sha256'], directory)
      bar.update(file['bytes'])
  return total


def _check_size(directory: str, file: dict) -> str:
  """Returns the path of a file if it is as large as the manifest says."""
  path = os.path.join(directory, file['name'])
  try:
    size = f'has {os.path.getsize(path)} bytes'
  except OSError as error:
    size = f'cannot be read ({error.strerror})'
  if size != f'has {file["bytes"]} bytes':
    raise errors.UserError(
      f'{path} {size}, its manifest says {file["bytes"]} bytes; prepare the '
      'data again.'
    )
  return path


def _check_sum(path: str, expected: str, directory: str):
  try:
    found = files_lib.sha256(path)
  except OSError as error:
    raise errors.UserError(
      f'{path} cannot be read ({error.strerror}); prepare the data again.'
    ) from error
  if found != expected:
    raise errors.UserError(
      f'{path} is not as it was made: its sha256 differs from that in '
      f'{os.path.join(directory, manifest.NAME)}; prepare the data again.'
    )


def order(seed: int, rows: np.ndarray, size: int):
  """Says which record each row of an endless, reshuffled sequence holds.

  Args:
    seed: of the shuffle.
    rows: [B] row numbers, counted from the beginning of training.
    size: records per epoch.

  Returns:
    (record, epoch), int64 [B]; each epoch holds every record once.
  """
  epoch, index = np.divmod(np.asarray(rows, np.int64), size)
  return hashing.permute(index, hashing.mix(seed, epoch), size), epoch


def prefetch(
  make: Callable[[int], dict], first: int, stop: int, workers: int = 0
) -> Iterator[dict]:
  """Yields make(first), ..., make(stop - 1), made ahead.

  Close the iterator (`.close()`) to end what makes them early.

  Args:
    make: returns a batch. With workers it must be possible to pickle, since
      each process gets a copy of its own: a functools.partial of a module's
      function or of a method, no lambda.
    first: number of the first batch.
    stop: number after the last.
    workers: processes that make batches; 0 makes them in a thread.

  Raises:
    errors.UserError: if a process dies.
  """
  if not workers:
    return _ahead(make, first, stop)
  return _made_by_processes(make, first, stop, min(workers, stop - first))


def _ahead(make, first, stop, end=lambda: None) -> Iterator[dict]:
  """Yields make(first), ... from a thread; calls `end` before joining it."""
  done = threading.Event()
  ready: queue.Queue = queue.Queue(_READ_AHEAD)

  def put(item) -> bool:
    while not done.is_set():
      try:
        ready.put(item, timeout=0.1)
        return True
      except queue.Full:
        pass
    return False

  def work():
    try:
      for t in range(first, stop):
        if not put((make(t), None)):
          return
    except BaseException as error:  # raised again where it is awaited
      put((None, error))

  thread = threading.Thread(target=work, daemon=True)
  thread.start()
  try:
    for _ in range(first, stop):
      item, error = ready.get()
      if error is not None:
        raise error
      yield item
  finally:
    done.set()
    end()
    thread.join()


def _made_by_processes(make, first, stop, count) -> Iterator[dict]:
  """Yields make(first), ...; process k makes every count-th from first + k.

  Each process has a pipe of its own, so that the order needs no bookkeeping
  and a process waits when it is a batch ahead.
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
      raise errors.UserError(
        'a process that makes batches died (killed, or out of memory); set '
        'data.loader_workers lower and run the same command again.'
      ) from None
    if error is not None:
      raise error
    return batch

  try:
    for k in range(count):
      pipe, theirs = context.Pipe(duplex=False)
      pipes.append(pipe)
      with theirs:  # closed here, so that its end is seen when they die
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
  """Sends batches; ends when they are all made or nobody listens."""
  # Signals are the parent's to answer; one that was killed breaks the pipe.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  for t in steps:
    try:
      item = make(t), None
    except errors.UserError as error:
      item = None, error
    except Exception:
      # Not itself: what a library raises may not survive the way.
      item = None, RuntimeError(traceback.format_exc())
    try:
      pipe.send(item)
    except BrokenPipeError:
      return
