"""Notices that the main thread hangs, from another thread."""

import contextlib
import dataclasses
from collections.abc import Iterator

# A run hangs if nothing happens for this many times the usual time of an
# update, but at least for this many seconds: a slow file system can delay a
# batch, and evaluation ends with work of the host.
_TIMES = 20
_LEAST_SECONDS = 600
_FIRST_SECONDS = 3600  # for the first update, when the usual time is unknown


@dataclasses.dataclass
class Pulse:
  """Counts what the training loop has done."""

  updates: int = 0  # begun
  evaluated: int = 0  # held-out batches begun
  # Whether the loop is running, and not doing something that may take any time,
  # such as saving.
  watched: bool = False

  @contextlib.contextmanager
  def watching(self, watched: bool = True) -> Iterator[None]:
    """Sets `watched` for the duration of the body."""
    before, self.watched = self.watched, watched
    try:
      yield
    finally:
      self.watched = before


class Watch:
  """Judges a pulse by looks, which the caller takes every `period` seconds.

  It counts looks, not seconds, so that a process that was suspended is not
  taken for one that hangs.
  """

  def __init__(self, pulse: Pulse, period: float):
    self._pulse, self._period = pulse, period
    self._updates = self._evaluated = 0
    # Looks since the last progress, and looks that the updates took.
    self._idle = self._busy = 0

  def find_hang(self, excused: bool = False) -> str | None:
    """Looks once; returns an error message if the main thread hangs.

    A loop that may have to wait for another process is `excused`.
    """
    pulse = self._pulse
    updates = pulse.updates - self._updates
    evaluated = pulse.evaluated - self._evaluated
    self._updates, self._evaluated = pulse.updates, pulse.evaluated
    self._idle += 1
    if updates and not evaluated:
      self._busy += self._idle
    if updates or evaluated or excused or not pulse.watched:
      self._idle = 0
    seconds, usual = self._idle * self._period, self._usual_seconds()
    limit = _FIRST_SECONDS
    if usual is not None:
      limit = max(_LEAST_SECONDS, _TIMES * usual)
    if seconds < limit:
      return None
    often = '' if usual is None else f', usually {usual:.3g} s'
    return f'no training step or evaluation batch for {seconds:.0f} s{often}'

  def _usual_seconds(self) -> float | None:
    """Returns the mean time of an update; None if it is not known yet."""
    # The loop waits for an update before it begins the second update after it.
    finished = self._updates - 2
    return self._busy * self._period / finished if finished > 0 else None
