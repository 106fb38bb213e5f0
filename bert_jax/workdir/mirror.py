"""Copies a run's growing files to a bucket, which cannot append.

They are written to a local folder, and uploaded whole if they have changed: every
minute, and whenever a checkpoint is about to be saved, so that a run that
resumes from it finds all before it.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import threading

from bert_jax import errors
from bert_jax.runtime import storage

_SECONDS = 60.0


class Mirror:
  """A folder for the files of a working directory that are appended to.

  Args:
    workdir: a folder, which is used as it is, or one in a bucket.

  Attributes:
    folder: local path to write to.
  """

  def __init__(self, workdir: str):
    self.folder, self._url = workdir, None
    if not storage.is_remote(workdir):
      return
    self._url = workdir
    self._temporary = tempfile.TemporaryDirectory(prefix='bert_jax.')
    self.folder = self._temporary.name
    self._copied: dict[str, tuple[int, int]] = {}
    self._lock = threading.Lock()
    self._done = threading.Event()
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._thread.start()

  def fetch(self, name: str):
    """Copies a file from the bucket, if it is there."""
    if self._url is None:
      return
    # Otherwise the thread might upload what has come so far.
    with self._lock, contextlib.suppress(FileNotFoundError):
      storage.download(
        os.path.join(self._url, name), os.path.join(self.folder, name)
      )

  def flush(self):
    """Uploads all that has changed."""
    if self._url is None:
      return
    with self._lock:
      for folder, _, names in os.walk(self.folder):
        for name in sorted(names):
          self._copy(os.path.relpath(os.path.join(folder, name), self.folder))

  def _copy(self, name):
    path = os.path.join(self.folder, name)
    found = os.stat(path)
    state = found.st_size, found.st_mtime_ns
    if self._copied.get(name) == state:
      return
    with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
      still = os.path.join(folder, 'copy')  # it must not grow meanwhile
      shutil.copyfile(path, still)
      storage.upload(still, os.path.join(self._url, name))
    self._copied[name] = state

  def _run(self):
    while not self._done.wait(_SECONDS):
      try:
        self.flush()
      except (OSError, errors.UserError) as error:
        # The run goes on: the next checkpoint waits for what is missing.
        print(f'warning: {error}', file=sys.stderr, flush=True)

  def close(self):
    """Uploads the rest and deletes the folder."""
    if self._url is None:
      return
    self._done.set()
    self._thread.join()
    try:
      self.flush()
    finally:
      self._temporary.cleanup()
