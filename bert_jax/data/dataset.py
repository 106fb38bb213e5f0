"""Opens prepared data, and verifies its files against the manifest.

Data in a bucket is copied to this host's disk before training, since batches
are read at random, for which a bucket is too slow. Copies are kept in the cache
folder, under the hash of their manifest, so a restart copies nothing. If there
are many hosts, each keeps the records of its own rows.
"""

import dataclasses
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Collection

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
  return fetch_files(directory, _list_files(manifest, lengths))


def fetch_files(
  directory: str, listed: dict[str, tuple[int | None, str]]
) -> str:
  """Returns a local folder with the manifest and files of one in a bucket.

  Args:
    listed: {name: (bytes, None if unknown; SHA-256)} of the files.
  """
  for name in listed:
    if name != os.path.basename(name) or name in ('', '.', '..'):
      raise errors.UserError(
        f'the manifest names {name!r}, which is not a file.'
      )
  raw = storage.read(os.path.join(directory, manifest_file.NAME))
  name = hashlib.sha256(raw).hexdigest()[:16]
  folder = storage.get_cache_folder('data', name)
  advice = 'set XDG_CACHE_HOME to a folder that can be written.'
  with errors.explaining(f'cannot copy {directory} to {folder}', advice):
    os.makedirs(folder, exist_ok=True)
    # Other processes of this machine may want the same copy.
    with lock.exclusive(os.path.join(folder, '.lock'), wait=True):
      disk.remove_unfinished(folder)
      _copy(directory, folder, listed)
      storage.write(os.path.join(folder, manifest_file.NAME), raw)
  return folder


def _list_files(manifest: dict, lengths) -> dict[str, tuple[int | None, str]]:
  """Returns {name: (bytes, None if unknown; SHA-256)} of the files needed."""
  found = {manifest_file.vocab_path(''): (None, manifest['vocab_sha256'])}
  for shard in manifest['shards']:
    for length, file in shard['files'].items():
      if int(length) in lengths:
        found[file['name']] = file['bytes'], file['sha256']
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


def name_part(folder: str, host: int, wanted: dict) -> str:
  """Returns the folder inside `fetch`'s for the records that a host keeps."""
  digest = hashlib.sha256(repr([*wanted]).encode())
  for numbers in wanted.values():
    digest.update(numbers)
  return os.path.join(folder, f'host{host}-{digest.hexdigest()[:16]}')


def copy_part(
  directory: str,
  folder: str,
  wanted: dict[tuple[str, int], np.ndarray],
  read: Callable[[str, int], bytes],
):
  """Copies records to a folder of `name_part`, which `open_split` then reads.

  Args:
    wanted: {(split, length): numbers of records, ascending, at least one}.
    read: (path, size) -> content of a file; all hosts ask for the same files in
      the same order, whatever they keep of them.
  """
  above = os.path.dirname(folder)
  found = manifest_file.read(above)
  of = {x: _list_split(directory, found, *x) for x in wanted}
  size = max(file['bytes'] for files in of.values() for file in files)
  for x, files in of.items():
    share = len(wanted[x]) / sum(file['records'] for file in files)
    size += int(share * sum(file['bytes'] for file in files))
  copies.check_room(size, above)
  advice = 'set XDG_CACHE_HOME to a folder that can be written.'
  with errors.explaining(f'cannot copy {directory} to {folder}', advice):
    os.makedirs(folder, exist_ok=True)
    disk.remove_unfinished(folder)
    for x, numbers in wanted.items():
      path = _name_kept(folder, *x)
      with storage.replacing(path) as new:
        records.write(new, _pick(directory, found, of[x], numbers, read))
      with storage.replacing(f'{path}.npy') as new, open(new, 'wb') as file:
        np.save(file, numbers)
    for name in (manifest_file.vocab_path(''), manifest_file.NAME):
      content = storage.read(os.path.join(above, name))
      storage.write(os.path.join(folder, name), content)


def _name_kept(folder, split, length):
  return os.path.join(folder, f'{split}-{length}')


def _pick(directory, manifest, files, numbers, read):
  """Yields the records of these numbers, with one file at a time on disk."""
  total, end = sum(file['bytes'] for file in files), 0
  with (
    progress.Progress(total, 'B', f'copying of {directory}') as bar,
    tempfile.TemporaryDirectory(prefix='bert_jax.') as folder,
  ):
    here = os.path.join(folder, 'file')
    for file in files:
      path = os.path.join(directory, file['name'])
      with errors.explaining(f'cannot read {path}', 'prepare the data again.'):
        content = read(path, file['bytes'])
      storage.write(here, content, synced=False)
      _check_sum(here, file['sha256'], path)
      start, end = end, end + file['records']
      own = numbers[slice(*np.searchsorted(numbers, (start, end)))] - start
      if len(own):
        size = manifest['recipe']['vocab_size']
        yield from records.Reader([here], size, [file['records']]).read(own)
      bar.update(file['bytes'])


@dataclasses.dataclass(frozen=True)
class Split:
  """The records of one split and length."""

  reader: records.Reader
  length: int  # S, tokens per row
  inputs: dict[str, np.ndarray]  # record numbers by input; {} in training


def open_split(
  directory: str,
  split: str,
  length: int,
  skip_corrupt: bool = False,
  unread: bool = False,
) -> Split:
  """Opens prepared data.

  File names, sizes and record counts are compared with the manifest; records
  are checked as they are read, and all files' checksums by `verify`.

  Args:
    length: S, one of the lengths that the data was prepared for.
    unread: whether to open no files: the reader is then a range of the record
      numbers, by the manifest.
  """
  found = manifest_file.read(directory)
  files = _list_split(directory, found, split, length)
  counts = [file['records'] for file in files]
  kept = _name_kept(directory, split, length)
  vocab_size = found['recipe']['vocab_size']
  if unread:
    reader = range(sum(counts))
  elif os.path.exists(kept):
    reader = records.Part(kept, vocab_size, sum(counts), skip_corrupt)
  else:
    paths = [_check_size(directory, file) for file in files]
    reader = records.Reader(paths, vocab_size, counts, skip_corrupt)
  of = {} if split == 'train' else _sort_by_input(found['inputs'], files)
  return Split(reader, length, of)


def _list_split(directory, manifest, split, length) -> list[dict]:
  """Returns the manifest's entries for the files of a split and length."""
  shards = [s for s in manifest['shards'] if s['split'] == split]
  files = [s['files'].get(str(length)) for s in shards]
  if None in files or not files:
    raise errors.UserError(
      f'{directory} was not prepared for length {length}, only for '
      f'{", ".join(manifest["lengths"])}.'
    )
  return files


def _sort_by_input(inputs, files) -> dict[str, np.ndarray]:
  runs = [run for x in files for run in x['inputs']]
  of = np.repeat(*np.array(runs).T)
  return {
    inputs[k]['input']: np.flatnonzero(of == k) for k in np.unique(of).tolist()
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
