"""The order of the data is arithmetic: row r of batch t, for any r and t.

Nothing is remembered between batches, so a checkpoint holds no state of the
data, and any host can read any rows.
"""

import dataclasses
import os
import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np

from bert_jax import errors
from bert_jax.data import hashing, prepare, records

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


def open_split(directory: str, split: str, length: int) -> Split:
  """Opens prepared data.

  Args:
    directory: output of `prepare`.
    split: 'train' or 'heldout'.
    length: a length that it was prepared for.

  Raises:
    errors.UserError: if the files are not those of the manifest.
  """
  manifest = prepare.read_manifest(directory)
  files = [
    s['files'].get(str(length))
    for s in manifest['shards']
    if s['split'] == split
  ]
  if None in files or not files:
    raise errors.UserError(
      f'{directory} was not prepared for length {length}, only for '
      f'{", ".join(manifest["lengths"])}.'
    )
  for file in files:
    path = os.path.join(directory, file['name'])
    size = os.path.getsize(path) if os.path.exists(path) else None
    if size != file['bytes']:
      raise errors.UserError(
        f'{path} has {size} bytes, its manifest says {file["bytes"]}; '
        'prepare the data again.'
      )
  paths = [os.path.join(directory, f['name']) for f in files]
  reader = records.Reader(paths, manifest['recipe']['vocab_size'])
  return Split(reader, length)


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
  make: Callable[[int], dict], first: int, stop: int
) -> Iterator[dict]:
  """Yields make(first), ..., make(stop - 1), made ahead by a thread.

  Close the iterator (`.close()`) to end the thread early.
  """
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
    thread.join()
