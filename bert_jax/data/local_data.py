"""Copies prepared data from a bucket to this host's disk, before training.

Copies are kept in the cache folder, under the hash of their manifest, so a
restart copies nothing. Batches are read from local files at random, for which a
bucket is too slow.
"""

import hashlib
import os
import threading
from collections.abc import Collection

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import manifest as manifest_lib
from bert_jax.runtime import copies, disk, lock, progress, storage


def fetch(directory: str, lengths: Collection[int]) -> str:
  """Returns a local folder with prepared data: itself, or a copy.

  Args:
    directory: output of `prepare`, local or in a bucket.
    lengths: the lengths of rows that are needed; without any, only manifest and
      vocabulary are copied.

  Raises:
    errors.UserError: if it is no prepared data, does not fit on the disk, or a
      file is not as it was made.
  """
  if not storage.is_remote(directory):
    return directory
  manifest = manifest_lib.read(directory)
  raw = storage.read(os.path.join(directory, manifest_lib.NAME))
  name = hashlib.sha256(raw).hexdigest()[:16]
  folder = storage.get_cache_folder('data', name)
  advice = 'set XDG_CACHE_HOME to a folder that can be written.'
  with errors.explaining(f'cannot copy {directory} to {folder}', advice):
    os.makedirs(folder, exist_ok=True)
    # Other processes of this machine may want the same.
    with lock.exclusive(os.path.join(folder, '.lock'), wait=True):
      disk.remove_unfinished(folder)
      _copy(directory, folder, _list_files(manifest, lengths))
      storage.write(os.path.join(folder, manifest_lib.NAME), raw)
  return folder


def _list_files(manifest: dict, lengths) -> dict[str, tuple[int | None, str]]:
  """Returns {name: (bytes, None if unknown; SHA-256)} of what is needed."""
  vocab = os.path.basename(manifest_lib.vocab_path(''))
  found = {vocab: (None, manifest['vocab_sha256'])}
  for shard in manifest['shards']:
    for length, file in shard['files'].items():
      if int(length) in lengths:
        found[file['name']] = file['bytes'], file['sha256']
  for name in found:
    if name != os.path.basename(name) or name in ('', '.', '..'):
      raise errors.UserError(f'the manifest names {name!r}, which is no file.')
  return found


def _copy(directory: str, folder: str, files: dict):
  """Copies the files that are not there yet, and compares their hashes."""

  def is_there(name, size):
    path = os.path.join(folder, name)
    return os.path.exists(path) and size in (None, os.path.getsize(path))

  missing = {k: v for k, v in files.items() if not is_there(k, v[0])}
  total = sum(size or 0 for size, _ in missing.values())
  copies.check_room(total, folder)
  counting = threading.Lock()
  with progress.Progress(total, 'B', f'copying {directory}') as bar:

    def check(name, new):
      size, expected = missing[name]
      if text_files.compute_sha256(new) != expected:
        raise errors.UserError(
          f'{os.path.join(directory, name)} is not as it was made: its sha256 '
          'differs from that in the manifest; prepare the data again.'
        )
      with counting:
        bar.update(size or 0)

    copies.download(directory, folder, list(missing), check)
