"""Finds the files of a model in its folder, and refuses links out of it."""

import collections
import os
import re
import reprlib
from collections.abc import Callable

import numpy as np

from bert_jax import errors
from bert_jax.runtime import files

# The text files of a BERT, which are read into memory.
SMALL = (
  *('config.json', 'tokenizer_config.json', 'tokenizer.json', 'vocab.txt'),
  *('special_tokens_map.json', 'added_tokens.json'),
)
_MAX_SMALL = 8 << 20  # bytes; the multilingual tokenizer.json takes 2 MB
_PLAIN = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,199}')


def find_small(directory: str, name: str) -> str | None:
  """Finds a file like `find`; raises errors.UserError if it is too large."""
  path = find(directory, name)
  if path and os.path.getsize(path) > _MAX_SMALL:
    raise errors.UserError(
      f'{path} takes {os.path.getsize(path):,} bytes, at most {_MAX_SMALL:,} '
      'are read; it is not a file of a BERT.'
    )
  return path


def find(directory: str, name: str) -> str | None:
  """Returns the real path of a file of a folder, None if it does not exist.

  A link may point to another file of the folder. In a snapshot of Hugging
  Face's cache, .../snapshots/REVISION, it may also point to .../blobs/HASH.

  Any other link is refused, without opening its target, and so is what is not a
  regular file and might never end.
  """
  path = os.path.join(directory, name)
  if not os.path.lexists(path):
    return None
  folder, real = os.path.realpath(directory), os.path.realpath(path)
  allowed = [folder]
  snapshots, _ = os.path.split(folder)
  if os.path.basename(snapshots) == 'snapshots':
    allowed.append(os.path.join(os.path.dirname(snapshots), 'blobs'))
  if os.path.dirname(real) not in allowed:
    raise errors.UserError(
      f'{path} is a link that leads out of the folder, to {real!r}; if that is '
      f'what you want, copy the folder with cp -rL {directory} NEW and name '
      'the copy.'
    )
  if not os.path.isfile(real):
    raise errors.UserError(f'{path} is not a regular file; copy it again.')
  return real


def read_shards(
  directory: str, index: str, read: Callable[[str], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
  """Reads the tensors of all files that an index lists, by `read(path)`.

  The index is a file of the folder, such as model.safetensors.index.json. No
  file outside the folder is opened, and each must have exactly the tensors that
  are listed.
  """
  path = os.path.join(directory, index)
  weight_map = files.read_json(find_small(directory, index)).get('weight_map')
  if not isinstance(weight_map, dict) or not weight_map:
    raise errors.UserError(
      f'{path} has no weight_map of tensors to files; copy it again.'
    )
  named = collections.defaultdict(set)
  for tensor, file in weight_map.items():
    if not isinstance(file, str) or not _PLAIN.fullmatch(file):
      raise errors.UserError(
        f'{path} names the file {reprlib.repr(file)}; only plain names of '
        'files of its own folder are read.'
      )
    named[file].add(tensor)
  tensors = {}
  for file, wanted in named.items():
    real = find(directory, file)
    held = read(real) if real else {}
    differ = sorted(map(reprlib.repr, wanted ^ held.keys()))
    if differ:
      what = 'is not what' if real else 'is missing, while'
      raise errors.UserError(
        f'{os.path.join(directory, file)} {what} {index} lists: it differs in '
        f'{errors.listing(differ)}; copy all files of the model again.'
      )
    tensors |= held
  return tensors
