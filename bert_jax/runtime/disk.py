"""Opens files of a local disk, and puts new files in place."""

import errno
import os
import re
import stat
from typing import BinaryIO

_BUFFER = 1 << 16  # bytes
_UNFINISHED = re.compile(r'\..*\.[0-9a-f]{16}\.new')


def open_file(path: str) -> BinaryIO:
  """Opens a regular file for reading.

  Raises:
    OSError: also for a pipe, which may block, or a device, which may never end.
  """
  return open(path, 'rb', _BUFFER, opener=_open_regular)


def open_own(path: str, flags: int) -> int:
  """Opens a regular file to write to, as an opener of `open`.

  Raises:
    OSError: also for a link, behind which there may be another's file.
  """
  if os.path.islink(path):
    raise OSError(errno.EPERM, 'it is a link, which is not followed', path)
  return _open_regular(path, flags | os.O_NOFOLLOW)


def _open_regular(path, flags) -> int:
  descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
  mode = os.fstat(descriptor).st_mode
  if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # `open` refuses folders
    return descriptor
  os.close(descriptor)
  reason = 'it is a pipe or a device, not a file'
  raise OSError(errno.EPERM, reason, path)


def create_beside(path: str) -> str:
  """Creates a file to be renamed to `path`; returns its path.

  Nothing can have been there before, such as a link to another file.
  """
  parent, name = os.path.split(path)
  new = os.path.join(parent, f'.{name}.{os.urandom(8).hex()}.new')
  flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
  os.close(os.open(new, flags, 0o666))
  return new


def remove_unfinished(folder: str):
  """Removes the files of `create_beside` that a kill left in a folder.

  No other process may be writing there.
  """
  if not os.path.isdir(folder):  # or in a bucket, which has whole objects
    return
  for name in os.listdir(folder):
    if _UNFINISHED.fullmatch(name):
      os.remove(os.path.join(folder, name))


def sync(path: str):
  """Flushes a local file's contents or a folder's entries to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
