"""Opens prepared data, and verifies its files against the manifest.

Data in a bucket, which is too slow to be read at random, is copied to each host's
cache folder, under the hash of its manifest, so a restart copies nothing.
"""

import dataclasses
import errno
import hashlib
import os
import threading
from collections.abc import Collection

import numpy as np

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import manifest_file, store
from bert_jax.runtime import lock, progress, storage


def fetch(directory: str, lengths: Collection[int]) -> str:
  """Returns a local folder with prepared data: itself, or a copy.

  Only rows of `lengths` are copied; without any, manifest and vocabulary.
  """
  if not storage.is_remote(directory):
    return directory
  manifest = manifest_file.read(directory)
  vocab = os.path.basename(manifest_file.vocab_path(directory))
  files = {vocab: {'sha256': manifest['vocab_sha256']}}
  for shard in manifest['shards'] if lengths else ():
    files |= {file['name']: file for file in store.list_files(shard, lengths)}
  for name in files:
    if name != os.path.basename(name):
      raise errors.UserError(f'the manifest names {name!r}, which is no file.')
  raw = storage.read(os.path.join(directory, manifest_file.NAME))
  name = hashlib.sha256(raw).hexdigest()[:16]
  folder = storage.get_cache_folder('data', name)
  advice = 'set XDG_CACHE_HOME to a folder that can be written.'
  with errors.explaining(f'cannot copy {directory} to {folder}', advice):
    os.makedirs(folder, exist_ok=True)
    # Other processes of this machine may want the same copy.
    with lock.exclusive(os.path.join(folder, '.lock'), wait=True):
      storage.remove_unfinished(folder)
      _copy(directory, folder, files)
      storage.write(os.path.join(folder, manifest_file.NAME), raw)
  return folder


def _copy(directory: str, folder: str, files: dict[str, dict]):
  """Copies the files that are not there yet, and compares their hashes."""
  with os.scandir(folder) as entries:
    sizes = {x.name: x.stat().st_size for x in entries}
  missing = {
    name: file
    for name, file in files.items()
    if name not in sizes or file.get('bytes', sizes[name]) != sizes[name]
  }
  total = sum(file.get('bytes', 0) for file in missing.values())
  free = storage.count_free(folder)
  if free < total:
    raise OSError(
      errno.ENOSPC,
      f'a copy needs {total / 1e9:.2f} GB, and {folder} has {free / 1e9:.2f} GB '
      'free; make room, or name a larger disk by XDG_CACHE_HOME',
    )
  counting = threading.Lock()
  with progress.Progress(total, 'B', f'copying {directory}') as bar:

    def check(name, new):
      file = missing[name]
      if text_files.compute_sha256(new) != file['sha256']:
        raise errors.UserError(
          f'{os.path.join(directory, name)} is not as it was made: its sha256 '
          'differs from that in the manifest; prepare the data again.'
        )
      with counting:
        bar.update(file.get('bytes', 0))

    storage.download_files(directory, folder, list(missing), check)


@dataclasses.dataclass(frozen=True)
class Split:
  """The rows of one split and length."""

  reader: store.Reader
  inputs: dict[str, np.ndarray]  # row numbers by input; {} in training


def open_split(directory: str, split: str, length: int) -> Split:
  """Opens prepared data of a length, S, that it was prepared for."""
  made = manifest_file.read(directory)
  shards = [shard for shard in made['shards'] if shard['split'] == split]
  recipe, of = made['recipe'], {}
  how = recipe['vocab_size'], recipe['pack'], recipe.get('rows', 'pairs')
  reader = store.Reader(directory, shards, length, *how)
  if split == 'heldout':  # whose rows are sorted
    runs = [run for x in shards for run in x['files'][str(length)]['inputs']]
    source = np.repeat(*np.array(runs).T)
    of = {
      made['inputs'][k]['input']: np.flatnonzero(source == k)
      for k in np.unique(source).tolist()
    }
    general = recipe['inputs'][-1] if recipe.get('general_share') else ''
    if general in of:
      # Of as many rows at most as of the domain, of which few were chosen else.
      most = max(sum(map(len, of.values())) - len(of[general]), 1)
      of[general] = of[general][:: -(-len(of[general]) // most)]
  return Split(reader, of)
