"""Runs a run of a sweep in a process of its own, and keeps what it prints."""

import collections
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from bert_jax.runtime import signals, storage

_OUTPUT = 'output.txt'
_LOOK = 0.2  # seconds between looks at the process


def run(
  command: Sequence[str],
  workdir: str,
  stop: signals.Stop,
  while_running: Callable[[], None],
) -> tuple[int, list[str]]:
  """Runs a command; what it prints is added to WORKDIR/output.txt.

  A signal is passed on to it, so that it saves and stops.

  Args:
    command: the program and its arguments.
    workdir: the run's directory, local or in a bucket.
    stop: records a signal to this process.
    while_running: is called several times a second.

  Returns:
    (exit code, or minus the signal that killed it; the last lines printed).
  """
  with _open_output(workdir) as path:
    begin = os.path.getsize(path) if os.path.exists(path) else 0
    with open(path, 'ab') as file:
      process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=subprocess.STDOUT,
        # Ctrl-C on a terminal goes to this process alone, which passes it on.
        start_new_session=True,
      )
    try:
      _wait(process, stop, while_running)
    finally:
      process.kill()
      process.wait()
    return process.returncode, _read_end(path, begin)


def _wait(process, stop, while_running):
  passed_on = False
  while process.poll() is None:
    if stop.signum is not None and not passed_on:
      # A closed stdout is this process's alone.
      gone = stop.signum == signal.SIGPIPE
      process.send_signal(signal.SIGTERM if gone else stop.signum)
      passed_on = True
    while_running()
    time.sleep(_LOOK)


@contextlib.contextmanager
def _open_output(workdir) -> Iterator[str]:
  """Yields the local path of a run's output, which is in a bucket later."""
  path = os.path.join(workdir, _OUTPUT)
  if not storage.is_remote(path):
    storage.make_folder(workdir)
    yield path
    return
  with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
    local = os.path.join(folder, _OUTPUT)
    if storage.exists(path):
      storage.download(path, local)
    yield local
    storage.upload(local, path)


def _read_end(path, begin, most: int = 10) -> list[str]:
  """Returns the last lines of a file that are not empty, after a byte."""
  with open(path, encoding='utf-8', errors='replace') as file:
    file.seek(begin)
    lines = (line.rstrip() for line in file)
    return list(collections.deque((x for x in lines if x), most))


def describe(code: int) -> str:
  """Describes how a process ended."""
  if code >= 0:
    return f'exit code {code}'
  name = signal.Signals(-code).name
  return f'{name}, maybe for lack of memory' if name == 'SIGKILL' else name
