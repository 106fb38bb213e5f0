"""jax's persistent cache of compiled programs, with checksums.

jax executes the entries that it finds: a damaged entry was seen to end the
process by SIGSEGV, at every start, since jax never replaces an entry. jax reads
and writes the cache through `etils.epath`, to which this module adds a path
type.
"""

import errno
import functools
import hashlib
import operator
import os
import sys

import jax
from etils import epath
from jax.experimental.compilation_cache import compilation_cache

from bert_jax import errors
from bert_jax.runtime import storage

_SCHEME = 'checked://'
_DIGEST_BYTES = hashlib.sha256().digest_size
# Other programs may use the same folder, without checksums.
_MARK = '-sha256'
_KINDS = '-cache', '-atime'


def use():
  """Turns the cache on, in the user's folder or in our own, if there can be one."""
  found = jax.config.jax_compilation_cache_dir
  try:
    folder = found or _make_folder()
  except errors.UserError as error:
    print(
      f'compiled programs are not kept: {error}', file=sys.stderr, flush=True
    )
    return
  if not folder.startswith(_SCHEME):
    jax.config.update('jax_compilation_cache_dir', _SCHEME + folder)
  compilation_cache.reset_cache()


def _make_folder() -> str:
  folder = storage.get_cache_folder('xla')
  advice = 'set XDG_CACHE_HOME to a folder that can be written.'
  with errors.explaining(f'cannot write to {folder}', advice):
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
  return folder


@epath.register_path_cls(_SCHEME)
class CheckedPath:
  """A folder, or an entry of the cache in it, which begins with a SHA-256."""

  def __init__(self, path: str):
    self._path = epath.Path(path.removeprefix(_SCHEME))
    self._whole: bytes | None = None

  def __truediv__(self, name: str) -> 'CheckedPath':
    for kind in _KINDS:
      key = name.removesuffix(kind)
      if key != name and not key.endswith(_MARK):
        name = key + _MARK + kind
    return CheckedPath(os.fspath(self._path / name))

  def joinpath(self, *names: str) -> 'CheckedPath':
    """Returns the path with these names appended."""
    return functools.reduce(operator.truediv, names, self)

  def __fspath__(self) -> str:
    return os.fspath(self._path)

  __str__ = __fspath__  # in jax's keys of programs for GPUs

  def __getattr__(self, name):
    return getattr(self._path, name)

  def exists(self) -> bool:
    """Returns whether there is an undamaged entry; removes a damaged one."""
    if not self._path.exists():
      return False
    found = self._path.read_bytes()
    digest, value = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    if digest != self._compute_digest(value):
      self._path.unlink(missing_ok=True)
      return False
    self._whole = value
    return True

  def read_bytes(self) -> bytes:
    """Returns the entry that `exists` has read."""
    if self._whole is None and not self.exists():
      raise FileNotFoundError(os.fspath(self))
    return self._whole

  def write_bytes(self, value: bytes):
    """Writes an entry."""
    self._path.write_bytes(self._compute_digest(value) + value)

  def _compute_digest(self, value: bytes) -> bytes:
    # With the name, so that no entry can be taken for another.
    return hashlib.sha256(self._path.name.encode() + value).digest()
