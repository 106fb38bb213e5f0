"""Ends a process whose training loop hangs, from another thread."""

import contextlib
import faulthandler
import os
import sys
from collections.abc import Iterator

from bert_jax import errors
from bert_jax.runtime import workers

_PERIOD = 2.0  # seconds between looks
# A loop hangs if nothing happens for this many times the usual time of an
# update, but at least for this many seconds: a slow file system can delay a
# batch, and evaluation ends with work of the host.
_TIMES = 20
_LEAST_SECONDS = 600
_FIRST_SECONDS = 3600  # for the first update, when the usual time is unknown


class Timer:
  """Ends this process with all stacks, unless it is re-armed in time.

  It counts looks of its thread, not seconds, so that a process that was
  suspended is not taken for one that hangs.
  """

  def __init__(self):
    # Looks since the last progress, and looks that the updates took.
    self._looks = self._busy = 0
    self._updates = 0  # begun
    self._is_paused = False

  def arm(self, update: bool = False):
    """Starts anew, since an update or a held-out batch begins."""
    if update:
      self._updates += 1
      self._busy += self._looks
    self._looks = 0

  @contextlib.contextmanager
  def running(self) -> Iterator[None]:
    """Watches this thread while the body runs."""
    with workers.calling(self._look, _PERIOD):
      yield

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """Lets the body, such as saving, take any time."""
    self._is_paused = True
    try:
      yield
    finally:
      self._looks, self._is_paused = 0, False

  def _look(self):
    self._looks += not self._is_paused
    seconds, limit, often = self._looks * _PERIOD, _FIRST_SECONDS, ''
    # The loop waits for an update before it begins the second update after it.
    finished = self._updates - 2
    if finished > 0:
      usual = self._busy * _PERIOD / finished
      limit = max(_LEAST_SECONDS, _TIMES * usual)
      often = f', usually {usual:.3g} s'
    if seconds >= limit:
      _end(f'no training step or evaluation batch for {seconds:.0f} s{often}')


def _end(message: str):
  # Not sys.exit: the main thread hangs.
  sys.stdout.flush()
  advice = 'Start the same command again to resume.'
  print(f'error: {message}. {advice}', file=sys.stderr, flush=True)
  faulthandler.dump_traceback()  # what each thread was waiting for
  os._exit(errors.HUNG)
