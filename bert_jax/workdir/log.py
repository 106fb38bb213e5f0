"""The log of a run: metrics.jsonl and TensorBoard's event files.

Each record of an event file is an event, a Protocol Buffer, with its length and
checksums, as in TFRecord files; its fields have the numbers of TensorFlow's
event.proto and summary.proto. Written by hand, since tensorboardX imports PyTorch
where that is installed, which takes ten seconds and 750 MB.
"""

import contextlib
import json
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax import errors
from bert_jax.runtime import files, storage, workers
from bert_jax.weight_files import sstable
from bert_jax.workdir import paths

_SECONDS = 60.0  # between uploads
_VERSION = b'brain.Event:2'
# Fields of an event, of its summary, of a value in that, and of a session log.
_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
_VALUE = 1
_TAG, _SIMPLE_VALUE = 1, 2
_STATUS, _START = 1, 1


class Mirror:
  """A folder for files that are appended to, which a bucket cannot.

  They are written to a local `folder`, and uploaded whole if they have changed:
  every minute, and whenever a checkpoint is about to be saved, so that a run that
  resumes from it finds all rows before it. Files of these names may be there
  already. A local folder is used as it is.
  """

  def __init__(self, path: str, names: Sequence[str] = ()):
    self.folder, self._path = path, path
    self._copied: dict[str, tuple[int, int]] = {}
    self._lock = threading.Lock()
    with contextlib.ExitStack() as stack:
      if storage.is_remote(path):
        self.folder = stack.enter_context(
          tempfile.TemporaryDirectory(prefix='bert_jax.')
        )
        for name in names:
          with contextlib.suppress(FileNotFoundError):
            storage.download(f'{path}/{name}', f'{self.folder}/{name}')
        stack.callback(self.flush)
        # After a failure the run goes on: the next checkpoint waits for the files.
        stack.enter_context(workers.calling(self.flush, _SECONDS))
      self._stack = stack.pop_all()

  def flush(self):
    """Uploads all that has changed."""
    if self.folder == self._path:
      return
    with self._lock:
      for folder, _, names in os.walk(self.folder):
        for name in sorted(names):
          self._copy(os.path.join(folder, name))

  def _copy(self, path):
    found = os.stat(path)
    state = found.st_size, found.st_mtime_ns
    if self._copied.get(path) != state:
      with open(path, 'rb') as file:
        content = file.read()  # it may grow meanwhile
      name = os.path.relpath(path, self.folder)
      storage.write(f'{self._path}/{name}', content)
      self._copied[path] = state

  def close(self):
    """Uploads the rest and deletes the folder."""
    self._stack.close()


class _EventFile:
  """An event file for events after `step`, which it hides in older ones.

  Each event reaches it at once.
  """

  def __init__(self, folder: str, step: int):
    name = (
      f'events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{step}'
    )
    self._file = open(os.path.join(folder, name), 'wb')
    self._write(_bytes(_FILE_VERSION, _VERSION))
    restart = _bytes(_SESSION_LOG, _integer(_STATUS, _START))
    self._write(_integer(_STEP, step + 1) + restart)

  def write(self, step: int, numbers: Mapping[str, float]):
    """Adds the value of each curve at a step."""
    values = (
      _bytes(_TAG, tag.encode())
      + _key(_SIMPLE_VALUE, 5)
      + struct.pack('<f', number)
      for tag, number in numbers.items()
    )
    summary = b''.join(_bytes(_VALUE, value) for value in values)
    self._write(_integer(_STEP, step) + _bytes(_SUMMARY, summary))

  def close(self):
    self._file.close()

  def _write(self, fields: bytes):
    event = _key(_TIME, 1) + struct.pack('<d', time.time()) + fields
    size = struct.pack('<Q', len(event))
    checksums = (sstable.compute_checksum(part) for part in (size, event))
    first, second = (struct.pack('<I', value) for value in checksums)
    self._file.write(size + first + event + second)
    self._file.flush()


def _key(field: int, wire_type: int) -> bytes:
  return sstable.encode_varint(field << 3 | wire_type)


def _integer(field: int, value: int) -> bytes:
  return _key(field, 0) + sstable.encode_varint(value)


def _bytes(field: int, value: bytes) -> bytes:
  return _key(field, 2) + sstable.encode_varint(len(value)) + value


class Log:
  """Writes rows of numbers to `metrics.jsonl` and TensorBoard event files.

  Of a run that resumes at `step`, rows of later steps and evaluations of this one
  are dropped, since they will be logged again. `evaluation` has the values of the
  newest one, if there is one.
  """

  def __init__(self, workdir: str, step: int):
    self._shown = paths.metrics(workdir)  # self.path may be a temporary one
    with self._reported():
      self._mirror = Mirror(workdir, [paths.metrics('')])
      self.path = paths.metrics(self._mirror.folder)
      board = paths.tensorboard(self._mirror.folder)
      rows = [
        row
        for row in read(self.path)
        if row['step'] < step or (row['step'] == step and row['kind'] != 'eval')
      ]
      if os.path.exists(self.path):
        text = ''.join(f'{json.dumps(row)}\n' for row in rows)
        files.write_text(self.path, text)
      self.evaluation = ([x for x in rows if x['kind'] == 'eval'] or [{}])[-1]
      self._file = open(
        self.path, 'a', encoding='utf-8', opener=storage.open_own
      )
      os.makedirs(board, exist_ok=True)
      self._board = _EventFile(board, step)

  def write(self, kind: str, step: int, values: dict):
    """Adds a row of numbers, which become curves, and texts.

    Its kind is 'run', 'compute', 'train', 'eval', 'checkpoint', 'skipped' or 'spike'.
    """
    numbers = {
      f'{kind}/{name}': value
      for name, value in values.items()
      if isinstance(value, int | float)
    }
    with self._reported():
      row = {'kind': kind, 'step': step, **values}
      self._file.write(json.dumps(row, allow_nan=False) + '\n')
      self._file.flush()
      if kind == 'eval':
        self.evaluation = row
      if numbers:
        self._board.write(step, numbers)

  def flush(self):
    """Waits until all rows are in the working directory, if it is a bucket."""
    with self._reported():
      self._mirror.flush()

  def _reported(self):
    return errors.explaining(f'cannot write the log {self._shown}')

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    del kind, traceback
    # Every row was flushed; a failed write to a full disk is not retried.
    for file in (self._file, self._board):
      with contextlib.suppress(OSError):
        file.close()
    try:
      with self._reported():
        self._mirror.close()
    except (OSError, errors.UserError):
      # Otherwise an earlier error is being raised, which must not be replaced.
      if error is None or isinstance(error, errors.Interrupted):
        raise


class Nothing:
  """The log of a process that does not write one."""

  evaluation: dict = {}

  def write(self, kind: str, step: int, values: dict):
    del kind, step, values

  def flush(self):
    pass


def read(path: str) -> list[dict]:
  """Returns the rows of a `metrics.jsonl`, without damaged lines."""
  rows = []
  if storage.exists(path):
    for line in storage.read(path).decode(errors='replace').split('\n'):
      with contextlib.suppress(ValueError, RecursionError):
        match json.loads(line):
          case {'kind': str(), 'step': int()} as row:
            rows.append(row)
  return rows


def find_facts(rows: list[dict]) -> dict:
  """Returns the newest row on what a run is made of; {} if none is left."""
  return next((row for row in reversed(rows) if row['kind'] == 'run'), {})


def count_seconds(
  rows: Sequence[dict], steps: Sequence[int], batch_sizes: Sequence[int]
) -> float:
  """Returns the seconds of training and evaluation, by the logged speed.

  `steps` and `batch_sizes` are of each phase.
  """
  ends = np.cumsum([0, *steps])
  sequences = np.cumsum([0, *np.multiply(steps, batch_sizes)])
  seconds = sum(x.get('seconds', 0) for x in rows if x['kind'] == 'eval')
  before = 0
  for row in (x for x in rows if x['kind'] == 'train'):
    done = np.interp(row['step'], ends, sequences)
    speed = row.get('sequences_per_second')
    seconds += (done - before) / speed if speed else 0
    before = done
  return float(seconds)
