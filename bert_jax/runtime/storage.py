"""Reads and writes files and folders, local or in a bucket (gs://).

A bucket has whole objects: no append, no rename, no lock, and a folder exists
while something is in it. Paths are strings, joined by os.path.join. Failures
raise OSError. Not by etils.epath, which takes errors of a disk for files that
are missing, leaves names with ~ out of lists, takes brackets for patterns, and
has no times of local files without an owner's name.
"""

import contextlib
import errno
import glob
import io
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import BinaryIO

from bert_jax import errors
from bert_jax.runtime import bucket

_RANGES_AT_ONCE = 16
_CHUNK = 8 << 20  # bytes of a request, which has half a minute
_BUFFER, _LOCAL_BUFFER = 1 << 20, 1 << 16  # bytes
_UNFINISHED = re.compile(r'\..*\.[0-9a-f]{16}\.new')


def is_remote(path: str) -> bool:
  return '://' in os.fspath(path)


def resolve(path: str) -> str:
  """Returns the absolute path, or the URL without a slash at its end."""
  name, slash, rest = path.removeprefix(bucket.SCHEME).partition('/')
  wrong = path.startswith(bucket.SCHEME) and not (name and slash and rest)
  # Empty is, for example, an unset variable of a shell, not the current folder.
  if not path or wrong or (is_remote(path) and ':' in name):
    raise errors.UserError(
      f'{path!r} is not an address to write to; give a local path or '
      'gs://BUCKET/NAME.'
    )
  if not is_remote(path):
    return os.path.abspath(path)
  bucket.connect(path)  # also before Orbax connects
  return path.rstrip('/')


def get_cache_folder(*names: str) -> str:
  """Returns the path of a folder for copies that may be deleted at any time."""
  root = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  if root.startswith('~'):  # e.g. a container's user who is not in /etc/passwd
    raise errors.UserError(f'{root} has no home in place of ~; set HOME.')
  return os.path.join(root, 'bert_jax', *names)


# Reading.


def read(
  path: str, offset: int | None = None, size: int | None = None
) -> bytes:
  """Returns a file's content, or `size` bytes of it from an offset on."""
  if not is_remote(path):
    with open_binary(path) as file:
      file.seek(offset or 0)
      return file.read(size)
  end = None if size is None else offset + size
  with bucket.using(path) as (filesystem, name):
    return filesystem.cat_file(name, offset, end)


def read_ranges(
  ranges: Sequence[tuple[str, int, int]],
) -> Iterator[bytes]:
  """Yields the bytes of (path, offset, size), several at a time from a bucket."""
  with futures.ThreadPoolExecutor(bucket.AT_ONCE) as pool:
    for first in range(0, len(ranges), _RANGES_AT_ONCE):
      columns = zip(*ranges[first : first + _RANGES_AT_ONCE], strict=True)
      at_once = pool.map if is_remote(ranges[first][0]) else map
      yield from at_once(read, *columns)


def open_binary(path: str) -> BinaryIO:
  """Opens a file for reading; raises OSError for what may block or never end."""
  if not is_remote(path):
    return open(path, 'rb', _LOCAL_BUFFER, opener=_open_regular)
  with bucket.using(path) as (filesystem, name):
    return io.BufferedReader(filesystem.open(name, 'rb'), _BUFFER)


def open_own(path: str, flags: int) -> int:
  """Opens a local file to write to, as an opener of `open`.

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
  raise OSError(errno.EPERM, 'it is a pipe or a device, not a file', path)


def exists(path: str) -> bool:
  """Returns whether there is a file or folder."""
  with contextlib.suppress(FileNotFoundError, NotADirectoryError):
    return bool(_look(path))
  return False


def is_folder(path: str) -> bool:
  return exists(path) and _look(path)[0]


def get_size(path: str) -> int:
  """Returns the bytes of a file."""
  return _look(path)[1]


def get_time(path: str) -> float:
  """Returns when a file was written, in Unix seconds of the storage's clock."""
  return _look(path)[2]


def _look(path: str) -> tuple[bool, int, float]:
  """Returns whether a path is a folder, its bytes and its time, 0 if unknown."""
  if not is_remote(path):
    about = os.stat(path)  # unlike os.path.exists, raises an error of the disk
    return stat.S_ISDIR(about.st_mode), about.st_size, about.st_mtime
  with bucket.using(path) as (filesystem, name):
    facts = filesystem.info(name)
  time = facts['mtime'].timestamp() if facts.get('mtime') else 0.0
  return facts['type'] == 'directory', facts['size'], time


def list_names(path: str) -> list[str]:
  """Returns the sorted names of a folder's files and folders.

  Raises FileNotFoundError if there is no such folder.
  """
  if not is_remote(path):
    return sorted(os.listdir(path))
  return sorted(_list_kinds(path))


def _list_kinds(path: str) -> dict[str, str]:
  """Returns {name: 'file' or 'directory'} of a folder in a bucket."""
  with bucket.using(path) as (filesystem, folder):
    listed = filesystem.ls(folder, detail=True)
  kinds = {
    x['name'].removeprefix(f'{folder}/').rstrip('/'): x['type'] for x in listed
  }
  # An object may have any name; these would not be files in a folder.
  return {x: kinds[x] for x in kinds.keys() - {'', '.', '..', folder}}


def expand(given: str) -> list[str]:
  """Returns the files that a path, a glob or a folder (with all below) names.

  Names that begin with a dot are left out of local folders.
  """
  # A path that exists is taken literally, even with brackets in its name.
  if is_remote(given):
    with bucket.using(given) as (filesystem, pattern):
      names = [pattern] if exists(given) else filesystem.glob(pattern)
      # Of a file, `find` returns that file.
      paths = {path for name in names for path in filesystem.find(name)}
      return sorted(map(filesystem.unstrip_protocol, paths))
  names = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
  files = (_below(name) if os.path.isdir(name) else [name] for name in names)
  return sorted({path for below in files for path in below})


def _below(directory: str) -> Iterator[str]:
  for folder, folders, names in os.walk(directory):
    folders[:] = [name for name in folders if not name.startswith('.')]
    for name in names:
      if not name.startswith('.'):
        yield os.path.join(folder, name)


def count_free(path: str) -> float:
  """Returns the free bytes on the disk of a path; a bucket is never full."""
  return math.inf if is_remote(path) else shutil.disk_usage(path).free


# Copies of what is in a bucket.


def download(path: str, local: str):
  """Copies an object to a local file."""
  with bucket.using(path) as (filesystem, name):
    filesystem.get_file(name, local)


def download_files(
  path: str,
  folder: str,
  names: Iterable[str],
  check: Callable[[str, str], None] = lambda name, new: None,
):
  """Copies files of a folder in a bucket to a local one, several at a time.

  A file has its name only when it is whole and checked: if `check`, which gets
  each name and its new copy, from several threads, raises, the copy is deleted.
  """

  def copy(name):
    with replacing(os.path.join(folder, name)) as new:
      download(os.path.join(path, name), new)
      check(name, new)

  with futures.ThreadPoolExecutor(bucket.AT_ONCE) as pool:
    list(pool.map(copy, names))  # cancels the rest if one fails


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
  """Yields a local path with the content of a file or folder.

  A local path is yielded as it is, whether it exists or not. Of a folder in a
  bucket, its own files are copied; the copies are deleted on exit. In errors,
  their path is replaced by the original's.
  """
  if not is_remote(path):
    yield path
    return
  path = path.rstrip('/')
  with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
    here = os.path.join(folder, os.path.basename(path))
    if is_folder(path):
      os.mkdir(here)
      kinds = _list_kinds(path)
      download_files(path, here, (x for x in kinds if kinds[x] == 'file'))
    else:
      download(path, here)
    try:
      yield here
    except errors.UserError as error:
      raise errors.UserError(str(error).replace(here, path)) from error


# Writing.


@contextlib.contextmanager
def replacing(path: str, synced: bool = True):
  """Yields a temporary local path; on exit, puts that file at `path`.

  After a kill or a power cut at any moment, `path` is the old or the new file.
  A local file is synced and renamed, an object is uploaded whole. If it is not
  `synced`, a new local file may be empty after a power cut, until `sync_files`,
  which takes less time for many files than one by one.
  """
  parent, name = os.path.split(path)
  if is_remote(path):
    with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
      yield os.path.join(folder, name)
      upload(os.path.join(folder, name), path)
    return
  new = os.path.join(parent, f'.{name}.{os.urandom(8).hex()}.new')
  open(new, 'xb').close()  # not what was there, such as a link to another file
  try:
    yield new
    if synced:
      sync(new)
    os.replace(new, path)
  except BaseException:
    if os.path.lexists(new):
      os.remove(new)
    raise
  if synced:
    sync(parent or '.')


def remove_unfinished(folder: str):
  """Removes what a kill in `replacing` left in a local folder.

  No other process may be writing there.
  """
  for name in os.listdir(folder) if os.path.isdir(folder) else ():
    if _UNFINISHED.fullmatch(name):
      os.remove(os.path.join(folder, name))


def sync(path: str):
  """Flushes a local file's contents or a folder's entries to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def sync_files(folder: str, names: Sequence[str]):
  """Flushes files of a local folder to the disk; an object needs no flush."""
  for name in (*names, '') if not is_remote(folder) else ():
    sync(os.path.join(folder, name))


def write(path: str, content: bytes, synced: bool = True):
  """Writes a small file, see `replacing`; an object needs no local disk."""
  if is_remote(path):
    with bucket.using(path) as (filesystem, name):
      filesystem.pipe_file(name, content, chunksize=_CHUNK)
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
    with bucket.using(path) as (filesystem, name):
      filesystem.pipe_file(name, content, mode='create')
    return True
  except FileExistsError:
    # Or the answer to our first attempt was lost, and this is it.
    return is_remote(path) and read(path) == content


def upload(local: str, path: str):
  """Copies a local file to an object, whole."""
  with bucket.using(path) as (filesystem, name):
    filesystem.put_file(local, name, chunksize=_CHUNK)


def delete(path: str):
  """Deletes a file, or a folder with all in it; it need not exist."""
  if not exists(path):
    return
  if is_remote(path):
    with bucket.using(path) as (filesystem, name):
      _delete_objects(filesystem, filesystem.find(name))
  elif os.path.isdir(path):
    shutil.rmtree(path)
  else:
    os.remove(path)


def _delete_objects(filesystem, names: Sequence[str]):
  # fsspec's own `rm` would take a path with brackets for a glob.
  def remove(name):
    with contextlib.suppress(FileNotFoundError):
      filesystem.rm_file(name)

  with futures.ThreadPoolExecutor(bucket.AT_ONCE) as pool:
    list(pool.map(remove, names))


def move_folder(source: str, target: str, mark: str):
  """Moves a folder to a path that does not exist yet.

  In a bucket that is a copy, then a deletion. The new folder gets its mark, the
  file without which it does not count, last, and the old one loses it first, so
  after a kill one of them is whole.
  """
  if not is_remote(source):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(source, target)
    return
  _, new = bucket.connect(target)
  with bucket.using(source) as (filesystem, name):

    def copy(path):
      filesystem.cp_file(path, new + path.removeprefix(name))

    marked = f'{name}/{mark}'
    others = [x for x in filesystem.find(name) if x != marked]
    with futures.ThreadPoolExecutor(bucket.AT_ONCE) as pool:
      list(pool.map(copy, others))
    copy(marked)
    _delete_objects(filesystem, [marked])
    _delete_objects(filesystem, others)
