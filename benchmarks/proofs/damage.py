"""Kinds of damage to a file."""

import json
import os
import pathlib
import random
import shutil
from collections.abc import Callable

_BLOCK = 64  # bytes
_ODD = 'x', None, -5, 10**30, True, 1.5, [], {}, [1, [2]]


def _read(path) -> bytes:
  return pathlib.Path(path).read_bytes()


def _write(path, content: bytes):
  pathlib.Path(path).write_bytes(content)


def _choose(raw: bytes, rng: random.Random) -> int:
  """Returns an offset; the padding of files is rarely chosen."""
  for _ in range(8):
    at = rng.randrange(len(raw))
    if raw[at]:
      return at
  return at


def flip(path, rng):
  raw = bytearray(_read(path))
  if raw:
    raw[_choose(raw, rng)] ^= 1 << rng.randrange(8)
  _write(path, raw)


def zero(path, rng):
  raw = bytearray(_read(path))
  if raw:
    at = _choose(raw, rng)
    end = min(at + _BLOCK, len(raw))
    raw[at:end] = bytes(end - at)
  _write(path, raw)


def truncate(path, rng):
  size = os.path.getsize(path)
  os.truncate(path, rng.randrange(max(size, 1)))


def empty(path, rng):
  del rng
  os.truncate(path, 0)


def delete(path, rng):
  del rng
  os.remove(path)


def append(path, rng):
  _write(path, _read(path) + rng.randbytes(_BLOCK))


def duplicate(path, rng):
  """Writes a block twice, which moves what comes after it."""
  raw = _read(path)
  at = rng.randrange(max(len(raw), 1))
  _write(path, raw[: at + _BLOCK] + raw[at : at + _BLOCK] + raw[at + _BLOCK :])


def swap(path, rng):
  """Exchanges a file with another one of its folder, or with random bytes."""
  folder = os.path.dirname(path)
  files = sorted(x.path for x in os.scandir(folder) if x.is_file())
  others = [x for x in files if x != path]
  if not others:
    _write(path, rng.randbytes(os.path.getsize(path)))
    return
  other = rng.choice(others)
  mine, theirs = _read(path), _read(other)
  _write(path, theirs)
  _write(other, mine)


def make_folder(path, rng):
  """Puts a folder where the file was."""
  del rng
  os.remove(path)
  os.mkdir(path)


def odd_value(path, rng):
  """Removes or replaces a value of a JSON file; in other files flips a bit."""
  try:
    content = json.loads(_read(path))
    places = list(_list_places(content))
  except ValueError:
    places = []
  if not places:
    flip(path, rng)
    return
  inner, name = rng.choice(places)
  if rng.random() < 0.3:
    del inner[name]
  else:
    inner[name] = rng.choice(_ODD)
  _write(path, json.dumps(content).encode())


def _list_places(value):
  """Yields (list or dict, index or name) of all that is in a JSON value."""
  if isinstance(value, dict | list):
    names = value if isinstance(value, dict) else range(len(value))
    for name in names:
      yield value, name
      yield from _list_places(value[name])


KINDS: dict[str, Callable] = {
  function.__name__: function
  for function in (
    *(flip, zero, truncate, empty, delete, append, duplicate, swap),
    *(make_folder, odd_value),
  )
}


def list_files(folder: str) -> list[str]:
  """Returns the paths of all files below a folder, relative to it."""
  found = []
  for root, _, names in os.walk(folder):
    found += [os.path.relpath(os.path.join(root, n), folder) for n in names]
  return sorted(found)


def copy_damaged(
  source: str, target: str, name: str, kind: str, rng: random.Random
):
  """Copies a folder to a path, where nothing may be left, and damages a file."""
  shutil.rmtree(target, ignore_errors=True)
  shutil.copytree(source, target)
  KINDS[kind](os.path.join(target, name), rng)
