"""Finds files in a model's folder, and refuses links out of it."""

import os
import stat

from bert_jax import errors

# The text files of a BERT, which are read into memory.
_SMALL = ('config.json', 'tokenizer_config.json', 'tokenizer.json', 'vocab.txt')
_MAX_SMALL = 8 << 20  # bytes; the multilingual tokenizer.json takes 2 MB


def check_small(directory: str):
  """Raises errors.UserError if a text file of a folder cannot be used."""
  for name in _SMALL:
    find_small(directory, name)


def find_small(directory: str, name: str) -> str | None:
  """Finds a file like `find`; raises errors.UserError if it is too large."""
  path = find(directory, name)
  if path and os.path.getsize(path) > _MAX_SMALL:
    raise errors.UserError(
      f'{path} takes {os.path.getsize(path):,} bytes, at most {_MAX_SMALL:,} '
      'are read; it is not that of a BERT.'
    )
  return path


def find(directory: str, name: str) -> str | None:
  """Returns the real path of a file of a folder, None if it does not exist.

  A link may point to another file of the folder. In a snapshot of Hugging
  Face's cache, .../snapshots/REVISION, it may also point to .../blobs/HASH.

  Args:
    directory: local folder.
    name: plain name of a file in it.

  Raises:
    errors.UserError: if it is a link to anywhere else, whose target is not
      opened; or not a regular file, which might never end.
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
  with errors.explaining(f'cannot read {path}'):
    mode = os.stat(real).st_mode
  if not stat.S_ISREG(mode):
    raise errors.UserError(f'{path} is not a regular file; copy it again.')
  return real
