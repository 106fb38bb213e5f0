"""Opens prepared data, and verifies its files against the manifest.

Data in a bucket is copied to this host's disk before training, since batches
are read at random, for which a bucket is too slow. Copies are kept in the cache
folder, under the hash of their manifest, so a restart copies nothing.
"""

import dataclasses
import hashlib
import os
import threading
from collections.abc import Collection

import numpy as np

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import manifest_file, records
from bert_jax.runtime import copies, disk, lock, progress, storage


def fetch(directory: str, lengths: Collection[int]) -> str:
  """Returns a local folder with prepared data: itself, or a copy.

  Args:
    lengths: the lengths of rows that are needed; without any, only manifest and
      vocabulary are copied.
  """
  if not storage.is_remote(directory):
    return directory
  manifest = manifest_file.read(directory)
  raw = storage.read(os.path.join(directory, manifest_file.NAME))
  name = hashlib.sha256(raw).hexdigest()[:16]
  folder = storage.get_cache_folder('data', name)
  advice = 'set XDG_CACHE_HOME to a folder that can be written.'
  with errors.explaining(f'cannot copy {directory} to {folder}', advice):
    os.makedirs(folder, exist_ok=True)
    # Other processes of this machine may want the same.
    with lock.exclusive(os.path.join(folder, '.lock'), wait=True):
      disk.remove_unfinished(folder)
      _copy(directory, folder, _list_files(manifest, lengths))
      storage.write(os.path.join(folder, manifest_file.NAME), raw)
  return folder


def _list_files(manifest: dict, lengths) -> dict[str, tuple[int | None, str]]:
  """Returns {name: (bytes, None if unknown; SHA-256)} of what is needed."""
  vocab = os.path.basename(manifest_file.vocab_path(''))
  found = {vocab: (None, manifest['vocab_sha256'])}
  for shard in manifest['shards']:
    for length, file in shard['files'].items():
      if int(length) in lengths:
        found[file['name']] = file['bytes'], file['sha256']
  for name in found:
    if name != os.path.basename(name) or name in ('', '.', '..'):
      raise errors.UserError(
        f'the manifest names {name!r}, which is not a file.'
      )
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
      _check_sum(new, expected, os.path.join(directory, name))
      with counting:
        bar.update(size or 0)

    copies.download(directory, folder, list(missing), check)


@dataclasses.dataclass(frozen=True)
class Split:
  """The records of one split and length."""

  reader: records.Reader
  length: int  # S, tokens per row
  inputs: dict[str, np.ndarray]  # record numbers by input; {} in training


def open_split(
  directory: str, split: str, length: int, skip_corrupt: bool = False
) -> Split:
  """Opens prepared data.

  File names, sizes and record counts are compared with the manifest; records
  are checked as they are read, and all files' checksums by `verify`.

  Args:
    length: S, one of the lengths that the data was prepared for.
  """
  found = manifest_file.read(directory)
  files = [
    s['files'].get(str(length)) for s in found['shards'] if s['split'] == split
  ]
  if None in files or not files:
    raise errors.UserError(
      f'{directory} was not prepared for length {length}, only for '
      f'{", ".join(found["lengths"])}.'
    )
  reader = records.Reader(
    [_check_size(directory, file) for file in files],
    found['recipe']['vocab_size'],
    [file['records'] for file in files],
    skip_corrupt,
  )
  of = {} if split == 'train' else _sort_by_input(found['inputs'], files)
  return Split(reader, length, of)


def _sort_by_input(inputs, files) -> dict[str, np.ndarray]:
  # Data of earlier versions do not say which input a record is of.
  runs = [run for x in files for run in x.get('inputs', [(-1, x['records'])])]
  of = np.repeat(*np.array(runs).T)
  return {
    inputs[k]['input'] if k >= 0 else '': np.flatnonzero(of == k)
    for k in np.unique(of).tolist()
  }


def verify(directory: str) -> int:
  """Compares all prepared files with the manifest; returns their bytes."""
  found = manifest_file.read(directory)
  files = [f for s in found['shards'] for f in s['files'].values()]
  total = sum(f['bytes'] for f in files)
  vocab = manifest_file.vocab_path(directory)
  _check_sum(vocab, found['vocab_sha256'], vocab)
  with progress.Progress(total, 'B', 'verifying') as bar:
    for file in files:
      path = _check_size(directory, file)
      _check_sum(path, file['sha256'], path)
      bar.update(file['bytes'])
  return total


def _check_size(directory: str, file: dict) -> str:
  """Returns the path of a file if it is as large as the manifest says."""
  path = os.path.join(directory, file['name'])
  with errors.explaining(f'cannot read {path}', 'prepare the data again.'):
    size = storage.get_size(path)
  if size != file['bytes']:
    raise errors.UserError(
      f'{path} has {size} bytes, its manifest says {file["bytes"]} bytes; '
      'prepare the data again.'
    )
  return path


def _check_sum(path: str, expected: str, original: str):
  if text_files.compute_sha256(path) != expected:
    raise errors.UserError(
      f'{original} is not as it was made: its sha256 differs from that in the '
      'manifest; prepare the data again.'
    )
