"""Connects to gs:// by gcsfs, with bounded patience and errors of one line.

It uses gcsfs rather than TensorStore's key-value store, since Orbax needs it
anyway, and it streams files and reports a forbidden bucket, which TensorStore
lists as empty.
"""

import contextlib
import errno
import functools
import logging
import os
import time

from bert_jax import errors
from bert_jax.runtime import hub

SCHEME = 'gs://'
AT_ONCE = 8  # requests

# Seconds of failed attempts after which a request is not tried again. gcsfs
# alone gives up after half a minute.
PATIENCE = 120.0
_CONNECT, _SILENCE = 20, 30  # seconds that an attempt may take or say nothing
_LOG_IN = (
  'run gcloud auth application-default login, or start on a machine whose '
  'service account may use the bucket'
)
_ALLOW = 'give the account the role Storage Object Admin on the bucket'


def connect(path: str):
  """Returns (fsspec file system, name in it) of a URL."""
  import fsspec

  package = f'{path} needs another package'
  install = "for gs:// pip install 'bert_jax[gcs]'."
  with errors.explaining(package, install, ImportError):
    if path.startswith(SCHEME):
      _prepare()
    if path.startswith(hub.DATASET):
      hub.prepare()
    return fsspec.core.url_to_fs(path)


@contextlib.contextmanager
def using(path: str):
  """Yields (fsspec file system, name in it); puts the URL into OSErrors."""
  place = connect(path)
  try:
    yield place
  except FileNotFoundError as error:
    reason = error.strerror or os.strerror(errno.ENOENT)
    raise FileNotFoundError(errno.ENOENT, reason, path) from error
  except OSError as error:
    error.filename = error.filename or path
    raise


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
    """Tries for longer, says why it failed, and never lists from a cache.

    Other hosts write to the bucket, so a list is old at once.
    """

    def __init__(self, *args, **options):
      limits = aiohttp.ClientTimeout(
        total=None, sock_connect=_CONNECT, sock_read=_SILENCE
      )
      ours = {'use_listings_cache': False, 'requests_timeout': limits}
      super().__init__(*args, **{**ours, **options})

    async def _request(self, method, *args, **options):
      deadline = time.monotonic() + PATIENCE
      while True:
        try:
          return await super()._request(method, *args, **options)
        except Exception as error:
          answers = {
            FileNotFoundError: method != 'POST',
            FileExistsError: 'ifGenerationMatch' in options,
          }
          # 416: gcsfs takes it for the end of an object.
          if answers.get(type(error)) or getattr(error, 'code', 0) == 416:
            raise
          if not _may_pass(error) or time.monotonic() > deadline:
            raise _explain(error) from error

  for name in Patient.protocol:
    fsspec.register_implementation(name, Patient, clobber=True)
  # TensorStore, by which Orbax reads and writes arrays, gets equal settings.
  if emulator := os.environ.get('STORAGE_EMULATOR_HOST'):
    os.environ.setdefault('TENSORSTORE_GCS_HTTP_URL', emulator)
  for name, value in (('TIME_SECONDS', _SILENCE), ('LIMIT_BYTES', 1)):
    os.environ.setdefault(f'TENSORSTORE_CURL_LOW_SPEED_{name}', str(value))


def _may_pass(error: Exception) -> bool:
  import gcsfs.retry

  away = isinstance(error, TimeoutError | ConnectionError)
  return away or gcsfs.retry.is_retriable(error)


def _explain(error: Exception) -> OSError:
  import google.auth.exceptions

  if isinstance(error, FileNotFoundError):  # what would write
    return FileNotFoundError(errno.ENOENT, 'there is no such bucket')
  code, text = getattr(error, 'code', None), errors.first_line(error)
  if isinstance(error, google.auth.exceptions.GoogleAuthError) or code == 401:
    return PermissionError(errno.EACCES, f'{text} ({_LOG_IN})')
  if text.startswith('Forbidden:'):
    more = ' '.join(str(error).splitlines()[1:])
    return PermissionError(errno.EACCES, f'HTTP 403, {more} ({_ALLOW})')
  again = f', after {PATIENCE:.0f} s of attempts' if _may_pass(error) else ''
  return OSError(errno.EIO, f'{type(error).__name__}, {text}{again}')
