"""Writes files and folders of results, and reads JSON."""

import fnmatch
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from typing import Any

from bert_jax import errors
from bert_jax.runtime import storage


def write_folder(
  directory: str, allowed: Collection[str], fill: Callable[[str], None]
):
  """Writes a folder; an existing one is replaced when the new one is complete.

  Locally by two renames: after a kill between them, the old one is at `.NAME.old`,
  and the next call puts it back. In a bucket, the old files are deleted and the new
  ones uploaded, those named *config.json first and last: without them, it is not
  taken for a model.

  An existing folder may contain files of `allowed` names, or patterns such as
  *.npz. `fill` writes the files into the folder whose path it is given.
  """
  directory = _resolve(directory)
  with errors.explaining(f'cannot write {directory}'):
    parent, name = os.path.split(directory)
    new, aside = (os.path.join(parent, f'.{name}.{x}') for x in ('new', 'old'))
    _put_back(directory, aside)
    old = storage.list_names(directory) if storage.exists(directory) else []
    known = [x for x in old if any(fnmatch.fnmatchcase(x, y) for y in allowed)]
    if other := sorted({*old} - {*known}):
      raise errors.UserError(
        f'{directory} holds {errors.listing(other)}, which an export would '
        'delete; name a folder that is empty or does not exist yet.'
      )
    if storage.is_remote(directory):
      _upload(fill, directory, old)
    else:
      _swap(fill, new, directory, aside)


def _upload(fill, url, old):
  def is_last(name):
    return name.endswith('config.json')

  with tempfile.TemporaryDirectory(prefix='bert_jax.') as new:
    fill(new)
    for name in sorted(old, key=is_last, reverse=True):
      storage.delete(os.path.join(url, name))
    for name in sorted(os.listdir(new), key=is_last):
      storage.upload(os.path.join(new, name), os.path.join(url, name))


def _swap(fill, new, directory, aside):
  for left in filter(os.path.lexists, (new, aside)):  # by a kill
    shutil.rmtree(left)
  os.makedirs(new)
  try:
    fill(new)
    storage.sync_files(new, os.listdir(new))
    if os.path.lexists(directory):
      os.rename(directory, aside)
    os.rename(new, directory)
  finally:  # also after an error or a signal
    _put_back(directory, aside)
    shutil.rmtree(new, ignore_errors=True)
  storage.sync(os.path.dirname(directory))
  if os.path.lexists(aside):
    shutil.rmtree(aside)


def _put_back(directory, aside):
  if os.path.lexists(aside) and not os.path.lexists(directory):
    os.rename(aside, directory)


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
