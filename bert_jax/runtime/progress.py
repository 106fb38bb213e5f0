"""Progress of long tasks: a bar on a terminal, otherwise occasional lines."""

import sys
import threading
import time

import tqdm

# tqdm's own lock has a semaphore, too, which outlives a worker process that is
# terminated; Python then warns of the leak.
tqdm.tqdm.set_lock(threading.RLock())

_SECONDS_BETWEEN_LINES, _MOST_SECONDS = 10, 600


def is_due(start: float, last: float) -> bool:
  """Returns whether to print a line now: ever more rarely since `start`."""
  now = time.monotonic()
  wait = max(_SECONDS_BETWEEN_LINES, (now - start) * 2 / 3)
  return now - last >= min(wait, _MOST_SECONDS)


class Progress:
  """Shows how much is done, the rate and the time left.

  Of `total` units, None if unknown; 'B', bytes, is shown with k, M, G. Without a
  terminal it prints `lines`, or nothing.
  """

  def __init__(
    self,
    total: float | None,
    unit: str,
    label: str,
    initial: float = 0,
    lines: bool = True,
    leave: bool = True,
  ):
    self._lines, self._label, self._done = lines, label, initial
    self._how = {'total': total, 'initial': initial, 'unit': unit}
    self._how['unit_scale'] = unit == 'B'
    self._bar = tqdm.tqdm(
      desc=label,
      leave=leave,
      # A bar within another takes its line for a while.
      position=0,
      dynamic_ncols=True,
      file=sys.stdout,
      disable=not sys.stdout.isatty(),
      **self._how,
    )
    self._start = self._last = time.monotonic()

  def update(self, n: float):
    """Counts `n` more units; 0 only shows that time goes by."""
    self._done += n  # tqdm stops counting when it is disabled
    self._bar.update(n)
    if not n:  # only the time changes
      self._bar.refresh()
    shown = not (self._bar.disable and self._lines)
    if not shown and is_due(self._start, self._last):
      self._last = time.monotonic()
      elapsed = self._last - self._start
      line = tqdm.tqdm.format_meter(
        self._done, elapsed=elapsed, ncols=0, prefix=self._label, **self._how
      )
      print(line, flush=True)

  def write(self, line: str):
    """Prints a line above the bar."""
    tqdm.tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()

  def __enter__(self):
    return self

  def __exit__(self, *exc):
    self._bar.close()
