"""Compares facts that must be the same on all hosts of a run."""

import contextlib
import hashlib
import importlib.metadata
import json
import pathlib

import jax
import numpy as np
from jax.experimental import multihost_utils

import bert_jax
from bert_jax import errors


def get_versions() -> dict[str, str]:
  """Returns the versions of jax and, if installed, libtpu."""
  versions = {'jax': jax.__version__}
  with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    versions['libtpu'] = importlib.metadata.version('libtpu')
  return versions


def hash_code() -> dict[str, str]:
  """Returns the versions and the SHA-256 of every source file."""
  root = pathlib.Path(bert_jax.__file__).parent
  files = {str(path.relative_to(root)): path for path in root.rglob('*.py')}
  hashes = {
    name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    for name, path in files.items()
  }
  return {'bert_jax': bert_jax.__version__, **get_versions(), **hashes}


def gather_texts(text: str) -> list[str]:
  """Returns the texts that all processes call this with, by process."""
  if jax.process_count() == 1:
    return [text]
  raw = text.encode()
  sizes = multihost_utils.process_allgather(np.int32(len(raw))).tolist()
  # At least a byte, since an empty array cannot be gathered.
  padded = np.frombuffer(raw.ljust(max(1, *sizes)), np.uint8)
  rows = multihost_utils.process_allgather(padded)
  return [
    row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)
  ]


def check_same(facts: dict):
  """Compares facts, {name: JSON value}, that must be the same on all hosts.

  All processes must call this. Raises errors.UserError on all hosts, naming the
  hosts that differ from host 0, and in what.
  """
  text = json.dumps(facts, sort_keys=True)
  marks = gather_texts(hashlib.sha256(text.encode()).hexdigest())
  if len(set(marks)) == 1:
    return
  first, *others = (json.loads(x) for x in gather_texts(text))
  found = [
    f'host {k} has {name}={other.get(name)!r} (host 0 has {first.get(name)!r})'
    for k, other in enumerate(others, 1)
    for name in sorted({*first, *other})
    if first.get(name) != other.get(name)
  ]
  raise errors.UserError(
    f'{errors.listing(found)}. Start the same command with the same files on '
    'every host.'
  )
