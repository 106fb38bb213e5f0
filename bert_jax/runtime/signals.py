"""SIGINT, SIGTERM, SIGHUP: stop at once, or after the current training step."""

import contextlib
import errno
import io
import os
import signal
import stat
import sys
import threading

from bert_jax import errors

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN = 0.1  # seconds until a signal is sent again
_sent: list[int] = []  # by `_send`


class Stop:
  """Holds the first signal that arrived, or None."""

  signum: int | None = None


@contextlib.contextmanager
def _handled_by(handler):
  def handle(signum, frame):
    del frame
    handler(_sent.pop() if _sent else signum)

  previous = {
    s: signal.signal(s, handle)
    for s in _SIGNALS
    # nohup lets a run outlive its terminal.
    if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN
  }
  try:
    yield
  finally:
    for s, old in previous.items():
      signal.signal(s, old)


@contextlib.contextmanager
def raising():
  """Raises `errors.Interrupted` as soon as a signal arrives.

  It does so even if a library raises another error from it, as Orbax does while
  it reads, or if it arrives where Python ignores errors.
  """
  previous = sys.unraisablehook

  def handler(signum):
    raise errors.Interrupted(signum)

  def hook(unraisable):
    # It arrived in a callback, such as jax's at garbage collection, or here, where
    # nothing can be raised; soon something else runs.
    interrupted = _find_interrupted(unraisable.exc_value)
    try:
      if not interrupted:
        previous(unraisable)
    except errors.Interrupted as error:
      interrupted = error
    if interrupted:
      threading.Timer(_AGAIN, _send, (interrupted.signum,)).start()

  sys.unraisablehook = hook
  try:
    with _handled_by(handler):
      yield
  except Exception as error:
    if interrupted := _find_interrupted(error):
      raise interrupted from None
    raise
  finally:
    sys.unraisablehook = previous


def _find_interrupted(error: BaseException | None):
  while error is not None and not isinstance(error, errors.Interrupted):
    error = error.__cause__  # not what went wrong while it was handled
  return error


@contextlib.contextmanager
def recording():
  """Yields a `Stop` that records the first signal, for the caller to poll."""
  stop = Stop()

  def handler(signum):
    stop.signum = stop.signum or signum
    name = signal.Signals(signum).name
    line = f'\n{name}: stopping after this step, or compiling, and saving.\n'
    # Not by `print`, in which the signal may have come.
    with contextlib.suppress(OSError):  # the terminal may be gone
      os.write(sys.stdout.fileno(), line.encode())

  with _handled_by(handler):
    yield stop


def _send(signum: int):
  """Stops the command as a signal would, even one that cannot reach it."""
  if callable(signal.getsignal(signal.SIGTERM)):
    _sent.append(signum)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)


class _Output(io.FileIO):
  """An output that nobody may read any more: a closed terminal or pipe."""

  def write(self, data):
    try:
      return super().write(data)
    except OSError as error:
      terminal = stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
      if error.errno != (errno.EIO if terminal else errno.EPIPE):
        raise
      with open(os.devnull, 'wb') as nowhere:
        os.dup2(nowhere.fileno(), self.fileno())
      if not terminal:  # one that closes sends SIGHUP, which may be ignored
        _send(signal.SIGPIPE)
      return len(data)


def watch_output():
  """Makes a closed output stop the command as a signal does, so that it saves."""
  for name in ('stdout', 'stderr'):
    old = getattr(sys, name)
    old.flush()
    raw = io.BufferedWriter(_Output(old.fileno(), 'w', closefd=False))
    how = {'line_buffering': old.line_buffering}
    how['write_through'] = old.write_through
    new = io.TextIOWrapper(raw, old.encoding, 'backslashreplace', **how)
    setattr(sys, name, new)
