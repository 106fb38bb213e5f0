"""Ends all processes of a run when one of them dies, stops or fails.

A thread in each process writes a heartbeat and the stacks of its threads to
WORKDIR/hosts, and reads those of the next process in a ring. It uses files,
since they outlive any process, even process 0.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax import errors
from bert_jax.parallel import distributed

_PERIOD = 2.0  # seconds between heartbeats
_MISSES = 8  # periods without a heartbeat after which a process counts as dead
# Time for the others to see that the run failed, and to write their stacks.
_FAREWELL = 1.5 * _PERIOD  # seconds


class _Hosts:
  """The files through which the processes of a run watch one another.

  Args:
    directory: shared by all processes.
    process: number of this process.
    count: number of processes.
  """

  def __init__(self, directory: str, process: int, count: int):
    self._directory = directory
    self._process, self._count = process, count
    self._beats = 0
    self._seen, self._misses = '', 0

  def _path(self, name) -> str:
    return os.path.join(self._directory, str(name))

  def beat(self):
    """Writes this process's heartbeat and stacks."""
    self._beats += 1
    new = self._path(f'.{self._process}')
    with open(new, 'w', encoding='utf-8') as file:
      file.write(f'{self._beats} {socket.gethostname()} {os.getpid()}\n')
      file.flush()
      faulthandler.dump_traceback(file)
    # Not synced to the disk: behind a checkpoint that could take so long that
    # the host would seem dead, and nobody needs it after a power cut.
    os.replace(new, self._path(self._process))

  def _read(self, name) -> str:
    with open(self._path(name), encoding='utf-8') as file:
      return file.read()

  def missing(self) -> str | None:
    """Checks the next process; returns an error message if it seems dead.

    Counts checks, not seconds, so that a process that was suspended itself does
    not blame another.
    """
    other = (self._process + 1) % self._count
    head = self._read(other).partition('\n')[0]
    self._misses = 0 if head != self._seen else self._misses + 1
    self._seen = head
    if self._misses < _MISSES:
      return None
    _, host, pid = head.split()
    return (
      f'host {other} ({host}, process {pid}) gave no sign of life for '
      f'{_MISSES * _PERIOD:.0f} s: it died, is stopped, or cannot write to '
      f'{self._directory}.'
    )

  def fail(self, message: str) -> bool:
    """Writes why the run fails; returns False if another process was first."""
    try:
      with open(self._path('failed'), 'x', encoding='utf-8') as file:
        file.write(message)
    except FileExistsError:
      return False
    return True

  def failed(self) -> str | None:
    """Returns why the run failed; None if it has not."""
    with contextlib.suppress(FileNotFoundError):
      return self._read('failed') or None  # may be empty for a moment
    return None

  def stacks(self) -> str:
    """Returns the last stacks of every process."""
    found = []
    for k in range(self._count):
      head, _, stack = self._read(k).partition('\n')
      found.append(f'--- host {k} ({head.split()[1]})\n{stack}')
    return '\n'.join(found)


@contextlib.contextmanager
def watch_hosts(workdir: str):
  """Ends this process if another fails, and the others if this one does.

  Args:
    workdir: the run's directory, on a file system that all hosts share.

  Raises:
    errors.UserError: if it is not shared.
  """
  if jax.process_count() == 1:
    yield
    return
  directory = os.path.join(workdir, 'hosts')
  hosts = _Hosts(directory, jax.process_index(), jax.process_count())
  _check_shared(directory)
  hosts.beat()
  distributed.barrier('hosts')
  done = threading.Event()
  thread = threading.Thread(target=_watch, args=(hosts, done), daemon=True)
  thread.start()
  try:
    yield
    distributed.leave()
  except BaseException as error:
    _leave_after(error, hosts)
    raise
  finally:
    done.set()
    thread.join()


def _check_shared(directory: str):
  """Recreates the directory; raises errors.UserError if it is not shared."""
  token = np.frombuffer(os.urandom(8), np.uint8)
  failure = None
  if distributed.is_first():
    try:
      _renew(directory, token.tobytes())
    except OSError as error:  # the others wait below and must be told
      failure = error
  token = multihost_utils.broadcast_one_to_all(token)
  if distributed.find_largest(failure is not None):
    reason = f' ({failure.strerror})' if failure else ''
    raise errors.UserError(
      f'host 0 cannot write to {directory}{reason}; make it writable, or '
      'remove it, or give another --workdir.'
    )
  found = b''
  with contextlib.suppress(OSError):
    with open(os.path.join(directory, 'run'), 'rb') as file:
      found = file.read()
  absent = jax.process_index() if found != token.tobytes() else 0
  absent = distributed.find_largest(absent)
  if absent:
    raise errors.UserError(
      f'host {absent} does not see what host 0 wrote to {directory}; give a '
      '--workdir on a file system that all hosts share.'
    )


def _renew(directory: str, token: bytes):
  """Removes an earlier run's files, and writes this run's token."""
  os.makedirs(directory, exist_ok=True)
  for name in os.listdir(directory):
    # NFS keeps open files under another name, which does no harm.
    with contextlib.suppress(OSError):
      os.remove(os.path.join(directory, name))
  with contextlib.suppress(FileNotFoundError):
    # An earlier run's message would end this run, too.
    os.remove(os.path.join(directory, 'failed'))
  with open(os.path.join(directory, 'run'), 'wb') as file:
    file.write(token)


def _watch(hosts: _Hosts, done: threading.Event):
  """Ends the process when another is missing or says that the run failed."""
  while not done.wait(_PERIOD):
    try:
      _look(hosts)
    except OSError:
      # If this host's file system stays unavailable, the previous host in the
      # ring reports this one missing.
      continue
    except Exception as error:
      # A thread that ends silently would look like a dead host.
      traceback.print_exception(error)
      message = (
        f'host {jax.process_index()}: its watchdog failed: '
        f'{type(error).__name__}: {str(error)[:300]}'
      )
      with contextlib.suppress(Exception):
        hosts.fail(message)
      _end(message, 1)


def _look(hosts: _Hosts):
  hosts.beat()
  if message := hosts.failed():
    _end(message, 1)
  if message := hosts.missing():
    hosts.fail(message)
    time.sleep(_FAREWELL)
    _end(f'{message}\n{hosts.stacks()}', 1)


def _end(message: str, code: int):
  if distributed.is_first():
    # Once process 0 has ended, jax ends the others before they can say why.
    time.sleep(_FAREWELL)
  # Not sys.exit: the main thread waits for a process that is dead, and so would
  # jax's shutdown.
  sys.stdout.flush()
  print(f'error: {message}', file=sys.stderr, flush=True)
  os._exit(code)


def _leave_after(error: BaseException, hosts: _Hosts):
  """Ends all processes, unless all of them ended for the same reason."""
  here = f'host {jax.process_index()}'
  if isinstance(error, errors.Interrupted):
    name = signal.Signals(error.signum).name
    try:
      distributed.leave()
    except jax.errors.JaxRuntimeError:  # the others did not stop
      hosts.fail(f'{here} was sent {name}; {error}')
      _end(f'{name}: {error}', 128 + error.signum)
    return
  if isinstance(error, errors.UserError):
    message = f'{here}: {error}'
  else:
    traceback.print_exception(error)
    message = f'{here}: {type(error).__name__}: {str(error)[:300]}'
    if isinstance(error, jax.errors.JaxRuntimeError):
      # The cause may be another process, which `_watch` then finds and names.
      time.sleep((_MISSES + 2) * _PERIOD)
  hosts.fail(message)
  _end(message, 1)
