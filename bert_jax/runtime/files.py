"""Writes files and folders whole or not at all, and reads JSON."""

import fnmatch
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from typing import Any

from bert_jax import errors
from bert_jax.runtime import disk, storage


def write_folder(
  directory: str, allowed: Collection[str], fill: Callable[[str], None]
):
  """Writes a folder; an existing one is replaced.

  Locally that is atomic: under a temporary name, synced, then renamed. The old
  folder is moved aside first and deleted last. If the process is killed, NAME
  is either the old or the new folder or, between the two renames, missing; then
  the old one is at `.NAME.old`, and the next call restores it.

  In a bucket, the old files are deleted and the new ones uploaded, those named
  *config.json first and last: without them, it is not taken for a model.

  Args:
    allowed: names of the files that an existing folder may contain, or patterns
      such as *.npz.
    fill: function that writes the files into the folder whose path it is given.
  """
  directory = _resolve(directory)
  with errors.explaining(f'cannot write {directory}'):
    storage.make_folder(os.path.dirname(directory))
    _check_replaceable(directory, allowed)
    if storage.is_remote(directory):
      _upload_folder(directory, fill)
    else:
      _replace_folder(directory, fill)


def _replace_folder(directory, fill):
  parent, name = os.path.split(directory)
  new, old = (os.path.join(parent, f'.{name}.{x}') for x in ('new', 'old'))
  if os.path.lexists(old) and not os.path.lexists(directory):
    os.rename(old, directory)
  for left in filter(os.path.lexists, (new, old)):
    shutil.rmtree(left)
  os.mkdir(new)
  try:
    fill(new)
    storage.sync_files(new, os.listdir(new))
    if os.path.lexists(directory):
      os.rename(directory, old)
    os.rename(new, directory)
  except BaseException:
    if os.path.lexists(old) and not os.path.lexists(directory):
      os.rename(old, directory)
    shutil.rmtree(new, ignore_errors=True)
    raise
  disk.sync(parent)
  if os.path.lexists(old):
    shutil.rmtree(old)


def _upload_folder(url, fill):
  def is_last(name):
    return name.endswith('config.json')

  with tempfile.TemporaryDirectory(prefix='bert_jax.') as new:
    fill(new)
    if storage.exists(url):
      for name in sorted(storage.list_names(url), key=is_last, reverse=True):
        storage.delete(os.path.join(url, name))
    for name in sorted(os.listdir(new), key=is_last):
      storage.upload(os.path.join(new, name), os.path.join(url, name))


def write_file(path: str, fill: Callable[[str], None]):
  """Writes a file, see `storage.replacing`, and creates its folder.

  For what a library writes by itself; otherwise see `write_text`.
  """
  path = _resolve(path)
  with errors.explaining(f'cannot write {path}'):
    storage.make_folder(os.path.dirname(path))
    with storage.replacing(path) as new:
      fill(new)


def _resolve(path: str) -> str:
  """Returns the path that is written, behind links, or the URL."""
  path = storage.resolve(path)
  return path if storage.is_remote(path) else os.path.realpath(path)


def _check_replaceable(directory, allowed):
  if not storage.exists(directory):
    return
  other = [
    name
    for name in storage.list_names(directory)
    if not any(fnmatch.fnmatchcase(name, x) for x in allowed)
  ]
  if other:
    raise errors.UserError(
      f'{directory} holds {errors.listing(other)}, which an export would delete; '
      'name a folder that is empty or does not exist yet.'
    )


def load_json(path: str):
  """Reads a JSON file; raises ValueError if it is not one."""
  try:
    return json.loads(storage.read(path).decode())
  except RecursionError as error:
    raise ValueError('it is nested too deeply') from error


def write_json(path: str, value: Any):
  r"""Writes a JSON file, see `write_text`; raises ValueError for NaN.

  Letters are not escaped, but lone surrogates, which UTF-8 lacks, are: "\ud83d".
  """
  text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
  write_text(path, f'{text}\n')


def write_text(path: str, text: str):
  """Writes a text file, see `storage.write`, and creates its folder."""
  with errors.explaining(f'cannot write {path}'):
    storage.make_folder(os.path.dirname(path))
    storage.write(path, text.encode(errors='backslashreplace'))


def read_json(path: str, advice: str = 'restore it from a copy') -> dict:
  """Reads a JSON object; `advice` ends the error for a malformed file."""
  with errors.explaining(f'{path} is not JSON', f'{advice}.', ValueError):
    with errors.explaining(f'cannot read {path}', 'is this the right path?'):
      value = load_json(path)
  if not isinstance(value, dict):
    raise errors.UserError(
      f'{path} holds a {type(value).__name__}, not an object; {advice}.'
    )
  return value
