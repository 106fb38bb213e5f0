"""Which files a glob or a folder names, on disk or in a bucket."""

import glob
import os
from collections.abc import Iterator

from bert_jax.runtime import bucket, storage


def expand(given: str) -> list[str]:
  """Returns the files that a path, a glob or a folder (with all below) names.

  Names that begin with a dot are left out of local folders.
  """
  if not storage.is_remote(given):
    return sorted(_expand_local(given))
  with bucket.using(given, 'list') as (filesystem, pattern):
    names = (
      [pattern]
      if storage.exists(given)
      else filesystem.glob(pattern, detail=False)
    )
    paths: set[str] = set()
    for name in names:
      paths.update(filesystem.find(name))  # of a file, find returns that file
    return sorted(filesystem.unstrip_protocol(path) for path in paths)


def _expand_local(given: str) -> set[str]:
  # A path that exists is taken literally, even with brackets in its name.
  names = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
  paths: set[str] = set()
  for name in names:
    paths.update(_below(name) if os.path.isdir(name) else [name])
  return paths


def _below(directory: str) -> Iterator[str]:
  for folder, folders, names in os.walk(directory):
    folders[:] = [name for name in folders if not name.startswith('.')]
    for name in names:
      if not name.startswith('.'):
        yield os.path.join(folder, name)
