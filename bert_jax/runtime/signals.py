"""SIGINT and SIGTERM: stop at once, or after the current training step."""

import contextlib
import signal

from bert_jax import errors

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
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
  """Raises `errors.Interrupted` as soon as a signal arrives."""

  def handler(signum, frame):
    del frame
    raise errors.Interrupted(signum, RESUME)

  with _handled_by(handler):
    yield


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
