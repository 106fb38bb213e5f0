"""Opens prepared data and verifies its files against the manifest."""

import dataclasses
import os

import numpy as np

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import manifest, records
from bert_jax.runtime import progress, storage


@dataclasses.dataclass(frozen=True)
class Split:
  """The records of one split and length.

  Attributes:
    reader: random access to the records.
    length: S, tokens per row.
    inputs: {input: its record numbers} of held-out data; {'': all} if it was
      made before it was held out by input; {} of training data.
  """

  reader: records.Reader
  length: int
  inputs: dict[str, np.ndarray]


def open_split(
  directory: str, split: str, length: int, skip_corrupt: bool = False
) -> Split:
  """Opens prepared data.

  File names, sizes and record counts are compared with the manifest; records
  are checked as they are read, and all files' checksums by `verify`.

  Args:
    directory: output of `prepare`.
    split: 'train' or 'heldout'.
    length: S, one of the lengths that the data was prepared for.
    skip_corrupt: see `records.Reader`.

  Raises:
    errors.UserError: if the files are not those of the manifest.
  """
  found = manifest.read(directory)
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
  runs = [run for x in files for run in x.get('inputs', [(-1, x['records'])])]
  of = np.repeat(*np.array(runs).T)
  return {
    '' if k < 0 else inputs[k]['input']: np.flatnonzero(of == k)
    for k in np.unique(of).tolist()
  }


def verify(directory: str) -> int:
  """Compares size and SHA-256 of every file of prepared data with its manifest.

  Returns:
    The number of bytes of records that were compared.

  Raises:
    errors.UserError: naming the first file that differs.
  """
  found = manifest.read(directory)
  files = [f for s in found['shards'] for f in s['files'].values()]
  total = sum(f['bytes'] for f in files)
  _check_sum(manifest.vocab_path(directory), found['vocab_sha256'], directory)
  with progress.Progress(total, 'B', 'verifying') as bar:
    for file in files:
      path = _check_size(directory, file)
      _check_sum(path, file['sha256'], directory)
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


def _check_sum(path: str, expected: str, directory: str):
  if text_files.compute_sha256(path) != expected:
    raise errors.UserError(
      f'{path} is not as it was made: its sha256 differs from that in '
      f'{os.path.join(directory, manifest.NAME)}; prepare the data again.'
    )
