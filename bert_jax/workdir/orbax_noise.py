"""Silences Orbax's output about failures that we report ourselves."""

import logging
import sys


def drop():
  """Drops Orbax's messages about failures, which are pages long."""
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_not_orbax)
  sys.unraisablehook = _show_unraisable


def _is_not_orbax(record: logging.LogRecord) -> bool:
  # asyncio reports the other writes that run when one fails.
  text = record.pathname + record.getMessage()
  return 'orbax' not in text and 'never retrieved' not in text


def _show_unraisable(unraisable):
  # From reads and writes that end after their operation has failed.
  if 'Event loop is closed' not in str(unraisable.exc_value):
    sys.__unraisablehook__(unraisable)
