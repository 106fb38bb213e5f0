"""Silences Orbax's output about failures that we report ourselves."""

import functools
import logging
import sys


def drop():
  """Drops Orbax's messages about failures, which are pages long.

  Other errors still go to the hook that was there: `signals.raising` has one,
  without which a signal that arrives in a finalizer would be lost.
  """
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_not_orbax)
  show = sys.unraisablehook
  if getattr(show, 'func', None) is not _show_unraisable:
    sys.unraisablehook = functools.partial(_show_unraisable, show)


def _is_not_orbax(record: logging.LogRecord) -> bool:
  # asyncio reports the other writes that run when one fails.
  text = record.pathname + record.getMessage()
  return 'orbax' not in text and 'never retrieved' not in text


def _show_unraisable(show, unraisable):
  # From reads and writes that end after their operation has failed: they were
  # still waiting, or their loop was gone.
  error = unraisable.exc_value
  waited = isinstance(getattr(error, '__cause__', None), GeneratorExit)
  if not waited and 'Event loop is closed' not in str(error):
    show(unraisable)
