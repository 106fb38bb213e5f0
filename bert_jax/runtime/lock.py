"""Locks: one writer at a time, in a folder or in a bucket.

In a folder, a lock is a file, which the kernel releases when a process ends. In
a bucket it is an object that its holder keeps renewing: PATH/1, PATH/2, ... are
created only if absent, so each number has one owner; the owner of the largest
holds the lock. It is taken over, by creating the next number, when its holder
released it or is provably gone: its process is dead on this machine, or the
object was not renewed for three minutes by the bucket's clock, though it should
be every 15 seconds.
"""

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator

from bert_jax import errors
from bert_jax.runtime import periodic, storage

_RENEW = 15.0  # seconds
_GONE = 180.0  # seconds without renewal
_NOBODY = {'host': 'an unknown host', 'machine': '', 'process': 0, 'since': 0.0}


class Held(errors.UserError):
  """Another process holds the lock."""


@contextlib.contextmanager
def exclusive(path: str, wait: bool = False, patient: bool = True):
  """Holds a lock.

  Raises Held if another process holds it, and errors.UserError if there can be
  no lock at `path`.

  Args:
    path: nothing else may have this path.
    wait: whether to wait for another process of this machine that holds it;
      only for a local path.
    patient: in a bucket, False raises at once even if the holder may be gone.
  """
  if storage.is_remote(path):
    with _hold(path, patient):
      yield
    return
  with errors.explaining(f'cannot write {path}', 'use another directory.'):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    opened = open(path, 'a')
  advice = (
    'use a directory on a file system with locks, or in a bucket (gs://).'
  )
  with opened as file:
    with errors.explaining(f'cannot lock {path}', advice):
      try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
      except BlockingIOError:
        raise Held(
          f'{path} is locked: another process is writing there; wait for it, '
          'or use another directory.'
        ) from None
    yield


@contextlib.contextmanager
def attempt(path: str) -> Iterator[bool]:
  """Takes a lock if it is free; yields whether it was."""
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(exclusive(path, patient=False))
    except Held:
      yield False
    else:
      yield True


# In a bucket.


@contextlib.contextmanager
def _hold(path: str, patient: bool):
  """Holds the lock; waits up to three minutes for a holder that may be gone.

  The process ends with an error if, while it was cut off from the bucket for
  longer than that, another took the lock over.
  """
  own = _describe_self()
  number = _take(path, own, patient)
  try:
    with periodic.calling(lambda: _renew(path, number, own), _RENEW):
      yield
  finally:
    with contextlib.suppress(OSError):  # it is over in minutes
      _write(path, number, {**own, 'released': True})


def _take(path: str, own: dict, patient: bool) -> int:
  """Returns the number under which this process holds the lock."""
  while True:
    numbers = _list(path)
    newest = max(numbers, default=0)
    if newest:
      _wait_until_free(_path(path, newest), path, patient)
    number = newest + 1
    if not storage.create(_path(path, number), _encode(own)):
      continue  # another process was faster; see whether it is alive
    # A list may be older than the object.
    if max(_list(path), default=0) > number:
      # A later holder has tidied up meanwhile, this number among others.
      storage.delete(_path(path, number))
      continue
    for old in numbers:
      storage.delete(_path(path, old))
    return number


def _list(path) -> list[int]:
  try:
    return [int(x) for x in storage.list_names(path) if x.isdecimal()]
  except FileNotFoundError:
    return []


def _wait_until_free(held: str, path: str, patient: bool):
  """Returns when the holder is gone; raises Held if it lives."""
  renewed = None
  while True:
    try:
      holder, (age, at) = _decode(storage.read(held)), _age(held)
    except FileNotFoundError:  # taken over and tidied up
      return
    who = f'{holder["host"]}, process {holder["process"]}'
    if holder.get('released') or _is_dead(holder) or age > _GONE:
      return
    if renewed is None and patient:
      print(
        f'{path} is held by {who}, which renewed it {age:.0f} s ago; waiting '
        f'for a sign of life, {_GONE - age:.0f} s at most',
        flush=True,
      )
    elif at != renewed or not patient:
      since = time.strftime('%F %T', time.localtime(holder['since']))
      raise Held(
        f'{path} is held by {who}, since {since}: it is writing there; stop '
        'it, or use another directory.'
      )
    renewed = at
    time.sleep(_RENEW / 3)


def _age(path: str) -> tuple[float, float]:
  """Returns how long ago an object was written, and when; bucket's clock."""
  probe = f'{os.path.dirname(path)}/now.{uuid.uuid4()}'
  storage.create(probe, b'')
  now = storage.get_time(probe)
  storage.delete(probe)
  at = storage.get_time(path)
  return now - at, at


def _renew(path: str, number: int, own: dict):
  # Not only the next number, whose owner may have come and gone.
  if max(_list(path), default=0) > number:
    _end(
      f'{path} was taken over by another process, since this one was cut '
      'off from the bucket for minutes.'
    )
  _write(path, number, own)


def _end(message: str):
  print(f'error: {message}', file=sys.stderr, flush=True)
  os._exit(1)  # the main thread may be anywhere


def _path(path, number) -> str:
  return os.path.join(path, str(number))


def _encode(value: dict) -> bytes:
  return json.dumps(value).encode()


def _decode(raw: bytes) -> dict:
  """Returns the holder of a lock; `_NOBODY` if the object is damaged."""
  try:
    found = json.loads(raw)
    if isinstance(found, dict) and all(
      isinstance(found.get(name), type(value))
      for name, value in _NOBODY.items()
    ):
      time.localtime(found['since'])
      return found
  except (ValueError, OverflowError, OSError, RecursionError):
    pass
  return _NOBODY


def _write(path, number, value):
  storage.write(_path(path, number), _encode(value))


# Identifies this process, so that others on its machine can see if it lives.


def _describe_self() -> dict:
  return {
    'host': socket.gethostname(),
    'machine': _identify_machine(),
    'process': os.getpid(),
    'since': time.time(),
  }


def _identify_machine() -> str:
  """Returns an id of the machine or container that numbers the processes.

  Only Linux has one; elsewhere it is '', and a dead holder is waited for.
  """
  try:
    with open('/proc/sys/kernel/random/boot_id') as file:
      return f'{file.read().strip()} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return ''


def _is_dead(holder: dict) -> bool:
  """Returns whether a holder was a process of this machine that is gone."""
  here = _describe_self()
  is_here = all(holder[name] == here[name] for name in ('host', 'machine'))
  known = bool(here['machine']) and is_here
  return known and not os.path.exists(f'/proc/{holder["process"]}')
