"""jax's persistent cache of compiled programs, with checksums.

jax executes what it finds there: a damaged entry was seen to end the process by
SIGSEGV, at every start, since jax never replaces an entry.
"""

import hashlib
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.runtime import storage

_DIGEST_BYTES = hashlib.sha256().digest_size
# Other programs may use the same folder, without checksums.
_SUFFIX = '-sha256'


def use():
  """Turns the cache on, in the user's folder or in our own."""
  if not jax.config.jax_compilation_cache_dir:
    directory = storage.get_cache_folder('xla')
    jax.config.update('jax_compilation_cache_dir', directory)
  try:
    from jax._src import compilation_cache as private  # no public API

    make = private.get_file_cache
  except (AttributeError, ImportError):
    print('compiled programs are not kept: this jax cannot check them')
    jax.config.update('jax_enable_compilation_cache', False)
    return
  if not hasattr(make, 'unchecked'):
    private.get_file_cache = _checking(make)
  compilation_cache.reset_cache()


def _checking(make):
  def make_checked(path):
    found = make(path)
    return found and (Checked(found[0]), found[1])

  make_checked.unchecked = make
  return make_checked


class Checked:
  """jax's cache in a folder, whose entries begin with a SHA-256.

  Args:
    cache: jax's.
  """

  def __init__(self, cache: Any):
    self._cache = cache
    self._path = cache._path

  def get(self, key: str) -> bytes | None:
    """Returns an entry; None if there is none or it is damaged."""
    found = self._cache.get(key + _SUFFIX)
    if found is None:
      return None
    digest, value = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    if digest == _compute_digest(key, value):
      return value
    # Otherwise `put` would leave it as it is.
    (self._cache.path / f'{key}{_SUFFIX}-cache').unlink(missing_ok=True)
    return None

  def put(self, key: str, value: bytes):
    """Adds an entry, unless there is one."""
    self._cache.put(key + _SUFFIX, _compute_digest(key, value) + value)


def _compute_digest(key: str, value: bytes) -> bytes:
  # With the key, so that no entry can stand for another.
  return hashlib.sha256(key.encode() + value).digest()
