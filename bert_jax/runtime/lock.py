"""Locks: one writer at a time, in a folder or in a bucket.

In a folder, a lock is a file, which the kernel releases when a process ends. In
a bucket it is a claim: PATH/1, PATH/2, ... are created only if absent, so each
number has one owner, and the owner of the largest is the writer, who writes it
again all the time. Who comes next takes over, by creating the next number, when
that one released its claim or is gone: its process is dead on this machine, or
it gave no sign of life for three minutes by the bucket's clock.
"""

import contextlib
import fcntl
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator

from bert_jax import errors
from bert_jax.runtime import storage, workers

_RELEASED = b'released'
_PERIOD = 15.0  # seconds between signs of life
_GONE = 180.0  # seconds without one


class Held(errors.UserError):
  """Another process holds the lock."""


@contextlib.contextmanager
def exclusive(path: str, wait: bool = False, patient: bool = True):
  """Holds a lock; raises Held if another process holds it.

  Args:
    path: nothing else may have this path.
    wait: whether to wait for another process of this machine that holds it;
      only for a local path.
    patient: in a bucket, False raises at once even if the holder may be gone.
  """
  if storage.is_remote(path):
    with _claim(path, patient):
      yield
    return
  os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
  with open(path, 'ab', opener=storage.open_own) as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
      raise Held(
        f'{path} is locked: another process is writing there; wait for it, or '
        'use another directory.'
      ) from None
    except OSError as error:
      raise errors.UserError(
        f'cannot lock {path}: {error.strerror}; use a directory on a file system '
        'with locks, or in a bucket (gs://).'
      ) from error
    yield


@contextlib.contextmanager
def attempt(path: str) -> Iterator[bool]:
  """Takes a lock if it is free; yields whether it was."""
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(exclusive(path, patient=False))
      held = True
    except Held:
      held = False
    yield held


# In a bucket.


@contextlib.contextmanager
def _claim(path: str, patient: bool):
  who = f'{socket.gethostname()}, process {os.getpid()}, since {time.ctime()}'
  lines = who, _identify_machine(), str(os.getpid()), str(uuid.uuid4())
  content = '\n'.join(lines).encode()
  while not (number := _take(path, content, patient)):
    pass  # another process was faster; see whether it lives

  def show_life():
    if _list(path)[-1] > number:
      line = f'error: another took {path} over: this process was cut off.'
      print(line, file=sys.stderr, flush=True)
      os._exit(errors.MISTAKE)  # the main thread may be anywhere
    storage.write(f'{path}/{number}', content)

  try:
    with workers.calling(show_life, _PERIOD):
      yield
  finally:
    with contextlib.suppress(OSError):  # it is over in minutes
      storage.write(f'{path}/{number}', _RELEASED)


def _take(path: str, content: bytes, patient: bool) -> int:
  """Returns the number of our claim, 0 if another process was faster."""
  numbers = _list(path)
  if newest := numbers[-1]:
    _wait_until_free(path, f'{path}/{newest}', patient)
  number = newest + 1
  if not storage.create(f'{path}/{number}', content):
    return 0
  # A list may be older than its objects, and a later holder have tidied up.
  is_last = _list(path)[-1] <= number
  for other in numbers[1:] if is_last else [number]:
    storage.delete(f'{path}/{other}')
  return number if is_last else 0


def _wait_until_free(path: str, claim: str, patient: bool):
  """Returns when the holder of a claim is gone; raises Held if it lives."""
  before = None
  while True:
    try:
      raw, at = storage.read(claim), storage.get_time(claim)
    except FileNotFoundError:  # taken over and tidied up
      return
    age = _read_clock(path) - at
    if raw == _RELEASED or _is_dead(raw) or age > _GONE:
      return
    holder = errors.escape(raw.decode(errors='replace').partition('\n')[0])
    who = f'{path} is held by {holder}'
    if not patient or before not in (None, at):
      raise Held(f'{who}: it is writing there; stop it, or use another path.')
    if before is None:
      left = f'{_GONE - age:.0f} s at most'
      print(f'{who}; waiting for a sign of life, {left}', flush=True)
    before = at
    time.sleep(_PERIOD / 3)


def _read_clock(path: str) -> float:
  """Returns the time by the bucket's clock."""
  probe = f'{path}/now.{uuid.uuid4()}'
  storage.create(probe, b'')
  now = storage.get_time(probe)
  storage.delete(probe)
  return now


def _list(path: str) -> list[int]:
  """Returns the numbers of all claims, sorted, after a 0."""
  names: list[str] = []
  with contextlib.suppress(FileNotFoundError):
    names = storage.list_names(path)
  return sorted([0, *(int(x) for x in names if x.isdecimal())])


def _identify_machine() -> str:
  """Returns an id of what numbers the processes; '' where it has none."""
  try:
    with open('/proc/sys/kernel/random/boot_id') as file:
      machine = f'{socket.gethostname()} {file.read().strip()}'
    return f'{machine} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return ''


def _is_dead(raw: bytes) -> bool:
  _, machine, process, *_ = [*raw.decode(errors='replace').split('\n'), '', '']
  is_here = machine == _identify_machine() != ''
  return is_here and not os.path.exists(f'/proc/{process}')
