"""Disks of a given size, and what makes them full or read-only."""

import contextlib
import os
import subprocess
import time

from fault import Skipped

from bert_jax.workdir import log

_NO_MOUNT = 'mounting a tmpfs needs the rights of root'


@contextlib.contextmanager
def mount(folder: str, kilobytes: int):
  """Yields the path of a disk of a given size."""
  path = os.path.join(folder, 'disk')
  os.makedirs(path, exist_ok=True)
  command = ['mount', '-t', 'tmpfs', '-o', f'size={kilobytes}k', 'tmpfs', path]
  if subprocess.run(command, capture_output=True).returncode:
    raise Skipped(_NO_MOUNT)
  try:
    yield path
  finally:
    subprocess.run(['umount', '-l', path], check=False)


def remount(path: str, option: str):
  subprocess.run(['mount', '-o', f'remount,{option}', path], check=True)


def fill(disk: str, left: int = 0):
  """Fills a disk but for some bytes."""
  with open(os.path.join(disk, 'junk'), 'ab', buffering=0) as file:
    with contextlib.suppress(OSError):
      while file.write(bytes(1 << 16)):
        pass
    with contextlib.suppress(OSError):
      while file.write(bytes(1 << 10)):
        pass
  size = os.path.getsize(os.path.join(disk, 'junk'))
  os.truncate(os.path.join(disk, 'junk'), size - left)


def clear(disk: str):
  os.remove(os.path.join(disk, 'junk'))


@contextlib.contextmanager
def before_row(kind: str, step: int, act):
  """Calls act() before a run logs a row, when the save before is finished."""
  write = log.Log.write

  def acting(self, found, number, values):
    if (found, number) == (kind, step):
      time.sleep(1.5)
      act()
    return write(self, found, number, values)

  log.Log.write = acting
  try:
    yield
  finally:
    log.Log.write = write
