"""Reads and writes files and folders, local or in a bucket (gs://).

A bucket has whole objects: no append, no rename, no lock, and a folder exists
while something is in it. Paths are strings, joined by os.path.join. Failures
raise OSError; for a bucket that is `bucket.Unavailable`, a UserError, unless an
object does not exist (FileNotFoundError).
"""

import contextlib
import glob
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import BinaryIO

from bert_jax import errors
from bert_jax.runtime import bucket, disk

_RANGES_AT_ONCE = 16
_CHUNK = 8 << 20  # bytes of a request, which has half a minute
# By Google's rules, https://cloud.google.com/storage/docs/buckets#naming.
_PART = '[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?'
_BUCKET = re.compile(rf'(?=.{{3,222}}$){_PART}(\.{_PART})*')


def is_remote(path: str) -> bool:
  return '://' in os.fspath(path)


def resolve(path: str) -> str:
  """Returns the absolute path, or the URL without a slash at its end."""
  if not path:  # such as an unset variable of a shell; not the current folder
    raise errors.UserError(
      'a path is empty; give a local path or gs://BUCKET/NAME.'
    )
  if not is_remote(path):
    return os.path.abspath(path)
  rest = path.removeprefix(bucket.SCHEME).rstrip('/')
  name = rest.partition('/')[0]
  if rest == path.rstrip('/') or not all(rest.partition('/')[::2]):
    raise errors.UserError(
      f'{path} is not an address to write to; give a local path or '
      'gs://BUCKET/NAME.'
    )
  if not _BUCKET.fullmatch(name):
    raise errors.UserError(
      f'{path}: {name!r} cannot be the name of a bucket: it has 3 to 63 '
      'characters, or up to 222 with dots, which are lower-case letters, digits, '
      "'-', '_' and '.', and it begins and ends with a letter or a digit."
    )
  bucket.connect(path)  # also before Orbax connects
  return path.rstrip('/')


def get_cache_folder(*names: str) -> str:
  """Returns the path of a folder for copies that may be deleted at any time."""
  root = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  if root.startswith('~'):  # e.g. a container's user who is not in /etc/passwd
    raise errors.UserError(
      f'{root} has no home directory in place of ~; set XDG_CACHE_HOME to a '
      'folder that can be written.'
    )
  return os.path.join(root, 'bert_jax', *names)


def reporting(path: str, verb: str):
  """Turns another library's errors about `path` into ours."""
  if is_remote(path):
    return bucket.reporting(path, verb)
  return contextlib.nullcontext()


def explain(path: str, error: BaseException) -> str | None:
  """Returns what went wrong with a bucket; None for unknown errors."""
  return bucket.explain(error) if is_remote(path) else None


def may_pass(path: str, error: BaseException) -> bool:
  """Returns whether a library's failed use of `path` may succeed later."""
  judge = bucket.may_pass if is_remote(path) else errors.may_pass
  return judge(error)


# Reading.


def read(
  path: str, offset: int | None = None, size: int | None = None
) -> bytes:
  """Returns a file's content, or `size` bytes of it from an offset on."""
  if not is_remote(path):
    with disk.open_file(path) as file:
      file.seek(offset or 0)
      return file.read(size)
  end = None if size is None else offset + size
  with bucket.using(path, 'read') as (filesystem, name):
    return filesystem.cat_file(name, offset, end)


def read_ranges(
  ranges: Sequence[tuple[str, int, int]],
) -> Iterator[bytes]:
  """Yields the bytes of (path, offset, size), in order.

  From a bucket, several are read at a time, since each answer takes long.
  """
  for first in range(0, len(ranges), _RANGES_AT_ONCE):
    columns = zip(*ranges[first : first + _RANGES_AT_ONCE], strict=True)
    if not is_remote(ranges[first][0]):
      yield from map(read, *columns)
      continue
    with futures.ThreadPoolExecutor(bucket.AT_ONCE) as pool:
      yield from pool.map(read, *columns)


def open_binary(path: str) -> BinaryIO:
  """Opens a local file or an object for reading."""
  return bucket.open_object(path) if is_remote(path) else disk.open_file(path)


def download(path: str, local: str):
  """Copies an object to a local file."""
  with bucket.using(path, 'read') as (filesystem, name):
    filesystem.get_file(name, local)


def exists(path: str) -> bool:
  """Returns whether there is a file or folder."""
  return _find_kind(path) is not None


def is_folder(path: str) -> bool:
  return _find_kind(path) == 'directory'


def get_size(path: str) -> int:
  """Returns the bytes of a file."""
  if not is_remote(path):
    return os.path.getsize(path)
  with bucket.using(path, 'read') as (filesystem, name):
    return filesystem.size(name)


def get_time(path: str) -> float:
  """Returns when a file was written, in Unix seconds of the storage's clock."""
  if not is_remote(path):
    return os.path.getmtime(path)
  with bucket.using(path, 'read') as (filesystem, name):
    return filesystem.modified(name).timestamp()


def _find_kind(path):
  """Returns 'file', 'directory' or None."""
  if not is_remote(path):
    try:
      os.stat(path)  # unlike os.path.exists, raises an error of the disk
    except (FileNotFoundError, NotADirectoryError):
      return None
    return 'directory' if os.path.isdir(path) else 'file'
  with bucket.using(path, 'read') as (filesystem, name):
    try:
      return filesystem.info(name)['type']
    except FileNotFoundError:
      return None


def list_names(path: str) -> list[str]:
  """Returns the sorted names of a folder's files and folders.

  Raises FileNotFoundError if there is no such folder.
  """
  if not is_remote(path):
    return sorted(os.listdir(path))
  with bucket.using(path, 'list') as (filesystem, name):
    found = filesystem.ls(name, detail=False)
  below = name.rstrip('/') + '/'
  names = {x.removeprefix(below).rstrip('/') for x in found if x != below}
  return sorted(names - {'', name})


def list_sizes(path: str) -> dict[str, int]:
  """Returns {name: bytes} of the files in a folder, without its folders."""
  if not is_remote(path):
    with os.scandir(path) as found:
      return {x.name: x.stat().st_size for x in found if x.is_file()}
  with bucket.using(path, 'list') as (filesystem, name):
    found = filesystem.ls(name, detail=True)
  sizes = {
    os.path.basename(x['name']): x['size'] for x in found if x['type'] == 'file'
  }
  # An object may have any name; these would not be files in a folder.
  return {k: sizes[k] for k in sizes if k not in ('', '.', '..')}


def expand(given: str) -> list[str]:
  """Returns the files that a path, a glob or a folder (with all below) names.

  Names that begin with a dot are left out of local folders.
  """
  if not is_remote(given):
    return sorted(_expand_local(given))
  with bucket.using(given, 'list') as (filesystem, pattern):
    names = (
      [pattern] if exists(given) else filesystem.glob(pattern, detail=False)
    )
    paths: set[str] = set()
    for name in names:
      paths.update(filesystem.find(name))  # of a file, find returns that file
    return sorted(filesystem.unstrip_protocol(path) for path in paths)


def _expand_local(given: str) -> set[str]:
  # A path that exists is taken literally, even with brackets in its name.
  names = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
  paths: set[str] = set()
  for name in names:
    paths.update(_below(name) if os.path.isdir(name) else [name])
  return paths


def _below(directory: str) -> Iterator[str]:
  for folder, folders, names in os.walk(directory):
    folders[:] = [name for name in folders if not name.startswith('.')]
    for name in names:
      if not name.startswith('.'):
        yield os.path.join(folder, name)


# Writing.


@contextlib.contextmanager
def replacing(path: str, synced: bool = True):
  """Yields a temporary local path; on exit, puts that file at `path`.

  After a kill or a power cut at any moment, `path` is the old or the new file.
  A local file is synced and renamed, an object is uploaded whole. If it is not
  `synced`, a new local file may be empty after a power cut, until `sync_files`,
  which takes less time for many files than one by one.
  """
  if is_remote(path):
    with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
      new = os.path.join(folder, os.path.basename(path))
      yield new
      upload(new, path)
    return
  new = disk.create_beside(path)
  try:
    yield new
    if synced:
      disk.sync(new)
    os.replace(new, path)
  except BaseException:
    if os.path.lexists(new):
      os.remove(new)
    raise
  if synced:
    disk.sync(os.path.dirname(path) or '.')


def sync_files(folder: str, names: Sequence[str]):
  """Flushes files of a local folder to the disk; an object needs no flush."""
  if not is_remote(folder):
    for name in names:
      disk.sync(os.path.join(folder, name))
    disk.sync(folder)


def write(path: str, content: bytes, synced: bool = True):
  """Writes a small file, see `replacing`; an object needs no local disk."""
  if is_remote(path):
    with _writing(path) as (filesystem, name):
      filesystem.pipe_file(name, content)
    return
  with replacing(path, synced) as new, open(new, 'wb') as file:
    file.write(content)


def make_folder(path: str):
  """Makes a folder and those above it; a bucket needs none."""
  if not is_remote(path):
    os.makedirs(path or '.', exist_ok=True)


def create(path: str, content: bytes) -> bool:
  """Writes a new file; returns False, and writes nothing, if there is one."""
  try:
    if not is_remote(path):
      with open(path, 'xb') as file:
        file.write(content)
      return True
    with _writing(path, bucket.CREATE) as (filesystem, name):
      filesystem.pipe_file(name, content, mode='create')
    return True
  except FileExistsError:
    # Or the answer to our first attempt was lost, and this is it.
    return is_remote(path) and read(path) == content


def upload(local: str, path: str):
  """Copies a local file to an object, whole."""
  with _writing(path) as (filesystem, name):
    filesystem.put_file(local, name, chunksize=_CHUNK)


@contextlib.contextmanager
def _writing(path, verb='write'):
  with bucket.using(path, verb) as found:
    try:
      yield found
    except FileNotFoundError as error:
      reason = 'there is no such bucket'
      raise bucket.Unavailable(
        f'cannot write {path}: {reason}.', reason
      ) from error


def delete(path: str):
  """Deletes a file, or a folder with all in it; it need not exist."""
  kind = _find_kind(path)
  if kind is None:
    return
  if is_remote(path):
    bucket.delete(path, is_folder=kind == 'directory')
  elif kind == 'directory':
    shutil.rmtree(path)
  else:
    os.remove(path)


def move_folder(source: str, target: str, mark: str):
  """Moves a folder to a path that does not exist yet.

  In a bucket that is a copy, then a deletion. The new folder gets its mark, the
  file without which it does not count, last, and the old one loses it first, so
  after a kill one of them is whole.
  """
  if not is_remote(source):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(source, target)
  else:
    bucket.move_folder(source, target, mark)


def count_free(path: str) -> float:
  """Returns the free bytes on the disk of a path; a bucket is never full."""
  return math.inf if is_remote(path) else shutil.disk_usage(path).free
