"""Connects to gs:// by gcsfs, with bounded patience and clear errors.

It uses gcsfs rather than TensorStore's key-value store, since Orbax needs it
anyway, and it streams files and reports a forbidden bucket, which TensorStore
lists as empty. Only `storage` uses this module.
"""

import contextlib
import errno
import functools
import io
import logging
import os
import time
from concurrent import futures
from typing import BinaryIO

from bert_jax import errors

SCHEME = 'gs://'
CREATE = 'create'
AT_ONCE = 8  # requests

# Seconds of failed attempts after which a request is not tried again. gcsfs
# alone gives up after half a minute.
PATIENCE = 120.0
_CONNECT, _SILENCE = 20, 30  # seconds that an attempt may take or say nothing
_BUFFER = 1 << 20  # bytes
_EMULATOR = 'STORAGE_EMULATOR_HOST'


class Unavailable(errors.UserError, OSError):
  """A request that failed for good.

  It is an OSError, too, so that code that reports a disk's errors reports it.
  """

  def __init__(self, message: str, reason: str, may_pass: bool = False):
    super().__init__(message, may_pass)
    self.errno, self.strerror = errno.EIO, reason

  def __reduce__(self):  # how a process sends it to its parent
    return Unavailable, (str(self), self.strerror, self.may_pass)

  def __str__(self):
    return self.args[0]  # not OSError's, which would be [Errno 5] and so on


def connect(path: str):
  """Returns (fsspec file system, name in it) of a URL."""
  import fsspec

  package = f'{path} needs another package'
  install = "for gs:// pip install 'bert_jax[gcs]'."
  odd = f'{path} is not an address that can be opened'
  with (
    errors.explaining(package, install, ImportError),
    errors.explaining(odd, 'use a path or gs://BUCKET/NAME.', ValueError),
  ):
    if path.startswith(SCHEME):
      _prepare()
    return fsspec.core.url_to_fs(path)


@contextlib.contextmanager
def reporting(path: str, verb: str):
  """Turns whatever a request raises into a clear error.

  The verb is 'read', 'write', 'list' or CREATE.

  Raises:
    FileNotFoundError: as it is, with an errno, if there is no such object.
    FileExistsError: as it is, if an object is to be created.
    Unavailable: for all other failures between here and the bucket.
  """
  try:
    yield
  except errors.UserError:
    raise
  except FileNotFoundError as error:
    raise FileNotFoundError(
      errno.ENOENT, os.strerror(errno.ENOENT), path
    ) from error
  except Exception as error:
    if isinstance(error, FileExistsError) and verb == CREATE:
      raise
    reason = explain(error)
    if reason is None:
      raise
    raise Unavailable(
      f'cannot {verb} {path}: {reason}.', reason, may_pass(error)
    ) from error


@contextlib.contextmanager
def using(path: str, verb: str):
  """Yields (fsspec file system, name in it); errors are as in `reporting`."""
  found = connect(path)
  with reporting(path, verb):
    yield found


def open_object(path: str) -> BinaryIO:
  """Opens an object for reading; errors are as in `reporting`."""
  with using(path, 'read') as (filesystem, name):
    file = filesystem.open(name, 'rb')
  return io.BufferedReader(_Object(path, file), _BUFFER)


class _Object(io.RawIOBase):
  """An object, whose later reads fail as clearly as the first."""

  def __init__(self, path: str, file: BinaryIO):
    self._path, self._file = path, file

  def readable(self):
    return True

  def seekable(self):
    return True

  def seek(self, offset, whence=io.SEEK_SET):
    return self._file.seek(offset, whence)

  def tell(self):
    return self._file.tell()

  def readinto(self, buffer):
    with reporting(self._path, 'read'):
      found = self._file.read(len(buffer))
    buffer[: len(found)] = found
    return len(found)

  def close(self):
    self._file.close()
    super().close()


def delete(path: str, is_folder: bool):
  """Deletes an object, or all below a folder; errors are as in `reporting`.

  fsspec's own `rm` would take a path with brackets for a glob.
  """
  filesystem, name = connect(path)

  def remove(found):
    with (
      reporting(path, 'delete'),
      contextlib.suppress(FileNotFoundError),
    ):
      filesystem.rm_file(found)

  if not is_folder:
    remove(name)
    return
  with reporting(path, 'list'):
    names = filesystem.find(name)
  with futures.ThreadPoolExecutor(AT_ONCE) as pool:
    list(pool.map(remove, names))


def move_folder(source: str, target: str, mark: str):
  """Copies a folder, then deletes it, see `storage.move_folder`."""
  filesystem, name = connect(source)
  _, new = connect(target)

  def copy(path):
    with reporting(source, 'copy'):
      filesystem.cp_file(path, new + path.removeprefix(name))

  with reporting(source, 'list'):
    found = set(filesystem.find(name))
  marked = found & {f'{name}/{mark}'}
  with futures.ThreadPoolExecutor(AT_ONCE) as pool:
    list(pool.map(copy, sorted(found - marked)))
  for path in marked:
    copy(path)
  delete(os.path.join(source, mark), is_folder=False)
  delete(source, is_folder=True)


@functools.cache
def _prepare():
  """Makes fsspec, and with it Orbax, use our settings for gs://."""
  # These loggers print tracebacks, caches, and where credentials are missing.
  for name in ('fsspec', 'gcsfs', 'google.auth'):
    logging.getLogger(name).setLevel(logging.CRITICAL)
  import aiohttp
  import fsspec
  import gcsfs.core

  class Patient(gcsfs.core.GCSFileSystem):
    """Tries for longer, and never lists from a cache.

    Other hosts write to the bucket, so a list is old at once.
    """

    def __init__(self, *args, **options):
      limits = aiohttp.ClientTimeout(
        total=None, sock_connect=_CONNECT, sock_read=_SILENCE
      )
      ours = {'use_listings_cache': False, 'requests_timeout': limits}
      super().__init__(*args, **{**ours, **options})

    async def _request(self, *args, **options):
      deadline = time.monotonic() + PATIENCE
      while True:
        try:
          return await super()._request(*args, **options)
        except Exception as error:
          if not errors.may_pass(error) or time.monotonic() > deadline:
            raise

  for name in Patient.protocol:
    fsspec.register_implementation(name, Patient, clobber=True)
  # TensorStore, by which Orbax reads and writes arrays, gets equal settings.
  if emulator := os.environ.get(_EMULATOR):
    os.environ.setdefault('TENSORSTORE_GCS_HTTP_URL', emulator)
  for name, value in (('TIME_SECONDS', _SILENCE), ('LIMIT_BYTES', 1)):
    os.environ.setdefault(f'TENSORSTORE_CURL_LOW_SPEED_{name}', str(value))


def may_pass(error: BaseException) -> bool:
  """Returns whether a request that failed may succeed later."""
  reason = explain(errors.find_cause(error)) or ''
  return errors.may_pass(error) or reason.startswith(_NO_ANSWER)


def explain(error: BaseException) -> str | None:
  """Returns why a request failed, and what to do; None if it is a bug."""
  try:
    import aiohttp
    import gcsfs.retry
    import google.auth.exceptions
    import requests
  except ImportError:  # another kind of URL, by a package of its own
    return errors.first_line(error) if isinstance(error, OSError) else None
  text = errors.first_line(error)
  if isinstance(error, google.auth.exceptions.GoogleAuthError):
    return f'{text} ({_LOG_IN})'
  if isinstance(error, gcsfs.retry.HttpError):
    if error.code == 401:
      return f'HTTP 401, {text}: no valid credentials ({_LOG_IN})'
    again = f' after {PATIENCE:.0f} s of attempts'
    again = again if errors.may_pass(error) else ''
    return f'HTTP {error.code}{again}, {text}'
  if str(error).startswith('Forbidden:'):
    message = str(error).partition('\n')[2] or 'without a reason'
    return (
      f'HTTP 403, {message}: the account has no right to this; give it the '
      'role Storage Object Admin on the bucket'
    )
  if isinstance(error, FileExistsError):  # how gcsfs reports it
    return 'HTTP 412, a condition of the bucket for this request is not met'
  if isinstance(error, OSError) and error.errno in _LOCAL:
    return f'{os.strerror(error.errno)}, on this machine'
  libraries = aiohttp.ClientError, requests.RequestException
  if isinstance(error, (OSError, TimeoutError, *libraries)):
    return f'{_NO_ANSWER} ({type(error).__name__}: {text})'
  # How gcsfs reports HTTP 400.
  return text if isinstance(error, ValueError) else None


# Errors of the local disk to which an object is copied.
_LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NO_ANSWER = 'no answer'
_LOG_IN = (
  'run gcloud auth application-default login, or start on a machine whose '
  'service account may use the bucket'
)
