"""SIGINT and SIGTERM: stop at once, or after the current training step."""

import contextlib
import signal
import sys
import threading

from bert_jax import errors

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN = 0.1  # seconds until a signal is sent again
RESUME = 'resume with the same command.'


class Stop:
  """Holds the first signal that arrived, or None."""

  signum: int | None = None


@contextlib.contextmanager
def _handled_by(handler):
  previous = {s: signal.signal(s, handler) for s in _SIGNALS}
  try:
    yield
  finally:
    for s, old in previous.items():
      signal.signal(s, old)


@contextlib.contextmanager
def raising():
  """Raises `errors.Interrupted` as soon as a signal arrives.

  Also where a library replaces that exception by one of its own, as Orbax does
  while it reads.
  """

  previous, hooked = sys.unraisablehook, False

  def handler(signum, frame):
    del frame
    if hooked:  # where nothing can be raised
      _send_later(signum)
    else:
      raise errors.Interrupted(signum, RESUME)

  def hook(unraisable):
    nonlocal hooked
    hooked = True
    try:
      # It arrived in a callback, such as jax's at garbage collection, which
      # cannot raise; soon something else runs.
      if interrupted := _find_interrupted(unraisable.exc_value):
        _send_later(interrupted.signum)
      else:
        previous(unraisable)
    finally:
      hooked = False

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


def _send_later(signum: int):
  again = threading.main_thread().ident, signum
  threading.Timer(_AGAIN, signal.pthread_kill, again).start()


def _find_interrupted(error: BaseException | None):
  while error is not None and not isinstance(error, errors.Interrupted):
    error = error.__cause__  # not what went wrong while it was handled
  return error


@contextlib.contextmanager
def recording():
  """Yields a `Stop` that records the first signal, for the caller to poll."""
  stop = Stop()

  def handler(signum, frame):
    del frame
    if stop.signum is None:
      stop.signum = signum
      name = signal.Signals(signum).name
      print(f'\n{name}: saving a checkpoint, then stopping.', flush=True)

  with _handled_by(handler):
    yield stop
