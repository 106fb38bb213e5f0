"""Locks: one writer at a time, in a folder or in a bucket."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from bert_jax import errors
from bert_jax.runtime import lease, storage


@contextlib.contextmanager
def exclusive(path: str, wait: bool = False, patient: bool = True):
  """Holds a lock.

  A local one is a file; the kernel releases it when the process ends. In a
  bucket, it is a `lease`.

  Args:
    path: nothing else may have this path.
    wait: whether to wait for another process of this machine that holds it;
      only for a local path.
    patient: as `lease.hold`, in a bucket.

  Raises:
    lease.Held: if another process holds it.
    errors.UserError: if there can be no lock at `path`.
  """
  if storage.is_remote(path):
    with lease.hold(path, patient):
      yield
    return
  with errors.explaining(f'cannot write {path}', 'use another directory.'):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    opened = open(path, 'a')
  advice = (
    'use a directory on a file system with locks, or in a bucket (gs://).'
  )
  with opened as file:
    with errors.explaining(f'cannot lock {path}', advice):
      try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
      except BlockingIOError:
        raise lease.Held(
          f'{path} is locked: another process is writing there; wait for it, '
          'or use another directory.'
        ) from None
    yield


@contextlib.contextmanager
def attempt(path: str) -> Iterator[bool]:
  """Takes a lock if it is free; yields whether it was."""
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(exclusive(path, patient=False))
    except lease.Held:
      yield False
    else:
      yield True
