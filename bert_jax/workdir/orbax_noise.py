"""Silence for what Orbax prints of failures that we report ourselves."""

import logging
import sys


def drop():
  """Drops what Orbax says of failures, pages long; ours is one line."""
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_not_orbax)
  sys.unraisablehook = _show_unraisable


def _is_not_orbax(record: logging.LogRecord) -> bool:
  # asyncio reports the siblings of the write that failed.
  text = record.pathname + record.getMessage()
  return 'orbax' not in text and 'never retrieved' not in text


def _show_unraisable(unraisable):
  # Reads and writes that end after the failure of the whole they belonged to.
  if 'Event loop is closed' not in str(unraisable.exc_value):
    sys.__unraisablehook__(unraisable)
