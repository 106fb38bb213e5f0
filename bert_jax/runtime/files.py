"""Atomic writing of files and folders, and reading of JSON."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Collection
from typing import Any

from bert_jax import errors


def write_folder(
  directory: str, allowed: Collection[str], fill: Callable[[str], None]
):
  """Writes a folder atomically: under a temporary name, synced, then renamed.

  An existing folder is moved aside first and deleted last. If the process is
  killed, NAME is either the old or the new folder or, between the two renames,
  missing; then the old one is at `.NAME.old`, and the next call restores it.

  Args:
    directory: local folder; an existing one is replaced.
    allowed: names of the files that an existing folder may contain.
    fill: function that writes the files into the folder whose path it is given.

  Raises:
    errors.UserError: if the folder cannot be written or replaced.
  """
  directory = resolve_local(directory)
  parent, name = os.path.split(directory)
  new, old = (os.path.join(parent, f'.{name}.{x}') for x in ('new', 'old'))
  try:
    os.makedirs(parent, exist_ok=True)
    _check_replaceable(directory, allowed)
    if os.path.lexists(old) and not os.path.lexists(directory):
      os.rename(old, directory)
    _remove(new, old)
    os.mkdir(new)
    try:
      fill(new)
      for written in os.listdir(new):
        sync(os.path.join(new, written))
      sync(new)
      if os.path.lexists(directory):
        os.rename(directory, old)
      os.rename(new, directory)
    except BaseException:
      if os.path.lexists(old) and not os.path.lexists(directory):
        os.rename(old, directory)
      _remove(new)
      raise
    sync(parent)
    _remove(old)
  except OSError as error:
    raise errors.UserError(f'cannot write {directory}: {error}.') from error


@contextlib.contextmanager
def replacing(path: str):
  """Yields a temporary path; on exit syncs that file and renames it to `path`.

  After a kill or a power cut at any moment, `path` is the old or the new file.

  Args:
    path: local file; an existing one is replaced unless the body raises.

  Raises:
    OSError: if the file cannot be written.
  """
  parent, name = os.path.split(path)
  new = os.path.join(parent, f'.{name}.new')
  try:
    yield new
    sync(new)
    os.replace(new, path)
  except BaseException:
    if os.path.lexists(new):
      os.remove(new)
    raise
  sync(parent or '.')


def write_file(path: str, fill: Callable[[str], None]):
  """Writes a file atomically, see `replacing`, and creates its folder.

  Args:
    path: local file; an existing one is replaced.
    fill: function that writes the file whose path it is given.

  Raises:
    errors.UserError: if the file cannot be written.
  """
  path = resolve_local(path)
  try:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with replacing(path) as new:
      fill(new)
  except OSError as error:
    raise errors.UserError(f'cannot write {path}: {error}.') from error


def resolve_local(path: str) -> str:
  """Returns the real path; raises errors.UserError for a URL."""
  if '://' in path:
    raise errors.UserError(
      f'cannot export to {path}; export to a local folder and copy it.'
    )
  return os.path.realpath(path)


def sync(path: str):
  """Flushes a file's contents or a folder's entries to the disk (fsync)."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def _check_replaceable(directory, allowed):
  if not os.path.lexists(directory):
    return
  if not os.path.isdir(directory):
    raise errors.UserError(
      f'{directory} is a file; name a folder that does not exist yet.'
    )
  other = sorted(set(os.listdir(directory)) - set(allowed))
  if other:
    raise errors.UserError(
      f'{directory} holds {errors.listing(other)}, which an export would delete; '
      'name a folder that is empty or does not exist yet.'
    )


def _remove(*folders):
  for path in folders:
    if os.path.lexists(path):
      shutil.rmtree(path)


def load_json(path: str):
  """Reads a JSON file."""
  with open(path, encoding='utf-8') as file:
    return json.load(file)


def write_json(path: str, value: Any):
  """Writes a JSON file, see `replacing`."""
  write_text(path, json.dumps(value, indent=2) + '\n')


def write_text(path: str, text: str):
  """Writes a text file, see `replacing`."""
  with replacing(path) as new:
    with open(new, 'w', encoding='utf-8', newline='\n') as file:
      file.write(text)


def read_json(path: str, advice: str = 'restore it from a copy') -> dict:
  """Reads a JSON object.

  Args:
    path: the file.
    advice: end of the error message, says what to do about a malformed file.

  Raises:
    errors.UserError: if the file cannot be read or is not a JSON object.
  """
  try:
    with open(path, encoding='utf-8') as f:
      value = json.load(f)
  except OSError as error:
    raise errors.UserError(
      f'cannot read {path}: {error.strerror}; is this the right path?'
    ) from error
  except (ValueError, RecursionError) as error:
    raise errors.UserError(
      f'{path} is not JSON ({error}); {advice}.'
    ) from error
  if not isinstance(value, dict):
    raise errors.UserError(
      f'{path} holds a {type(value).__name__}, not an object; {advice}.'
    )
  return value
