"""Reads tensors that are split over several files with an index."""

import collections
import os
import re
import reprlib
from collections.abc import Callable

import numpy as np

from bert_jax import errors
from bert_jax.runtime import files as files_lib
from bert_jax.weight_files import local_files

_PLAIN = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,199}')


def read(
  directory: str, name: str, read_file: Callable[[str], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
  """Reads the tensors of all files that an index lists.

  Args:
    directory: local folder; no file outside it is opened.
    name: name of the index in it, such as model.safetensors.index.json.
    read_file: returns the tensors of one file, given its path.

  Returns:
    {name: array}.

  Raises:
    errors.UserError: if the index is malformed or names files outside the
      folder, or if a file's tensors are not exactly those listed in the index;
      and as `read_file`.
  """
  tensors = {}
  for file, wanted in _files(directory, name).items():
    found = read_file(_path(directory, name, file))
    for fault, names in (
      ('lacks', wanted - found.keys()),
      ('should not have', found.keys() - wanted),
    ):
      if names:
        shown = errors.listing([reprlib.repr(n) for n in sorted(names)])
        raise errors.UserError(
          f'{os.path.join(directory, file)} {fault} {shown}, by {name}; copy '
          'both again.'
        )
    tensors |= found
  return tensors


def _files(directory, name):
  """Returns {file: names of its tensors} of an index."""
  path = local_files.find_small(directory, name)
  weight_map = files_lib.read_json(path).get('weight_map')
  if not isinstance(weight_map, dict) or not weight_map:
    raise errors.UserError(
      f'{path} has no weight_map of tensors to files; copy it again.'
    )
  files = collections.defaultdict(set)
  for tensor, file in weight_map.items():
    if not isinstance(file, str) or not _PLAIN.fullmatch(file):
      raise errors.UserError(
        f'{path} names the file {reprlib.repr(file)}; only plain names of '
        'files of its own folder are read.'
      )
    files[file].add(tensor)
  return files


def _path(directory, index, file):
  path = local_files.find(directory, file)
  if path is None:
    raise errors.UserError(
      f'{os.path.join(directory, file)} does not exist, but {index} names it; '
      'copy all files of the model.'
    )
  return path
