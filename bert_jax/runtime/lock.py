"""A lock file: one writer at a time."""

import contextlib
import fcntl
import os

from bert_jax import errors


@contextlib.contextmanager
def exclusive(path: str):
  """Holds a lock file; the kernel releases it when the process ends.

  Raises:
    errors.UserError: if another process holds it.
  """
  try:
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    opened = open(path, 'a')
  except OSError as error:
    raise errors.UserError(
      f'cannot write {path}: {error.strerror}; use another directory.'
    ) from error
  with opened as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise errors.UserError(
        f'{path} is locked: another process is writing there; wait for it, '
        'or use another directory.'
      ) from None
    yield
