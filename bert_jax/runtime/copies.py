"""Makes local copies of files in a bucket."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures

from bert_jax import errors
from bert_jax.runtime import bucket, storage


@contextlib.contextmanager
def local_copy(path: str, names: Sequence[str] | None = None):
  """Yields a local path with the content of a file or folder.

  A local path is yielded as it is, whether it exists or not. Of a folder in a
  bucket, the files in it, or those of these names, are copied, but not its
  subfolders; the copies are deleted on exit. In errors, its path is replaced by
  the original's. Raises FileNotFoundError if there is no such object.
  """
  if not storage.is_remote(path):
    yield path
    return
  path = path.rstrip('/')
  with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
    here = os.path.join(folder, os.path.basename(path))
    if storage.is_folder(path):
      os.mkdir(here)
      with bucket.using(path) as (filesystem, name):
        listed = filesystem.ls(name, detail=True)
      there = {x['name'] for x in listed if x['type'] == 'file'}
      chosen = names or map(os.path.basename, there)
      download(path, here, {*chosen} & {*storage.list_names(path)})
    else:
      storage.download(path, here)
    try:
      yield here
    except errors.UserError as error:
      raise errors.UserError(str(error).replace(here, path)) from error


def check_room(size: int, folder: str):
  """Raises OSError unless that many bytes fit into a local folder."""
  free = shutil.disk_usage(folder).free
  if free < size:
    raise OSError(
      errno.ENOSPC,
      f'a copy needs {size / 1e9:.2f} GB, and {folder} has {free / 1e9:.2f} GB '
      'free; make room, or name a larger disk by TMPDIR or XDG_CACHE_HOME',
    )


def download(
  path: str,
  folder: str,
  names: Iterable[str],
  check: Callable[[str, str], None] = lambda name, new: None,
):
  """Copies files of a folder in a bucket to a local one, several at a time.

  A file has its name only when it is whole and checked: `check` is called with
  each name and the path of its new copy, from several threads, and if it
  raises, the copy is deleted.
  """

  def copy(name):
    with storage.replacing(os.path.join(folder, name)) as new:
      storage.download(os.path.join(path, name), new)
      check(name, new)

  with futures.ThreadPoolExecutor(bucket.AT_ONCE) as pool:
    list(pool.map(copy, names))  # cancels the rest if one fails
