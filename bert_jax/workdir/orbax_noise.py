"""Silences Orbax's output about failures that we report ourselves."""

import functools
import logging
import sys
import warnings

from bert_jax import errors


def drop():
  """Drops Orbax's messages about failures, which are pages long.

  Other errors still go to the hook that was there: `signals.raising` has one,
  without which a signal that arrives in a finalizer would be lost.
  """
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_not_orbax)
  warnings.filterwarnings('ignore', 'coroutine .* was never awaited')
  show = sys.unraisablehook
  if getattr(show, 'func', None) is not _show_unraisable:
    sys.unraisablehook = functools.partial(_show_unraisable, show)


def _is_not_orbax(record: logging.LogRecord) -> bool:
  # asyncio reports the other writes that run when one fails.
  text = record.pathname + record.getMessage()
  return 'orbax' not in text and 'never retrieved' not in text


def _show_unraisable(show, unraisable):
  # An operation that fails abandons its other reads and writes: coroutines that
  # never began or are ended while they wait, and answers to a loop that is gone.
  code = getattr(unraisable.object, 'cr_code', None)
  of_orbax = code is not None and '/orbax/' in code.co_filename
  closed = 'Event loop is closed' in str(unraisable.exc_value)
  if _is_interrupted(unraisable.exc_value) or not (of_orbax or closed):
    show(unraisable)


def _is_interrupted(error: BaseException | None) -> bool:
  while error is not None and not isinstance(error, errors.Interrupted):
    error = error.__cause__ or error.__context__
  return error is not None
