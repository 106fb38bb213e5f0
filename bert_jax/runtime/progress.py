"""Progress of long tasks: a bar on a terminal, otherwise occasional lines."""

import sys
import threading
import time

import tqdm

# tqdm's own lock has a semaphore, too, which outlives a worker process that is
# terminated; Python then warns of the leak.
tqdm.tqdm.set_lock(threading.RLock())

_SECONDS_BETWEEN_LINES, _MOST_SECONDS = 10, 600
_FEW = 12  # units, which take too different times for a rate


def is_due(start: float, last: float) -> bool:
  """Returns whether to print a line now: ever more rarely since `start`."""
  now = time.monotonic()
  wait = max(_SECONDS_BETWEEN_LINES, (now - start) * 2 / 3)
  return now - last >= min(wait, _MOST_SECONDS)


class Progress:
  """Shows how much is done, the rate and the time left.

  Args:
    total: units in all, None if unknown.
    unit: what is counted ('B', bytes, is shown with k, M, G).
    lines: whether to print plain lines if there is no terminal.
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
    self._lines, self._scaled = lines, unit == 'B'
    self._label = label
    self._bar = tqdm.tqdm(
      total=total,
      initial=initial,
      unit=unit,
      unit_scale=self._scaled,
      desc=label,
      leave=leave,
      # A bar within another takes its line for a while.
      position=0,
      dynamic_ncols=True,
      file=sys.stdout,
      disable=not sys.stdout.isatty(),
    )
    # tqdm stops counting when it is disabled, so count here.
    self._done, self._first, self._total = initial, initial, total
    self._unit = unit
    self._start = self._last = time.monotonic()

  def update(self, n: float):
    """Counts `n` more units; 0 only shows that time goes by."""
    self._done += n
    self._bar.update(n)
    if not n:  # only the time changes
      self._bar.refresh()
    shown = not (self._bar.disable and self._lines)
    if not shown and is_due(self._start, self._last):
      self._last = time.monotonic()
      print(f'{self._label}: {self.describe()}', flush=True)

  def describe(self) -> str:
    """Returns 'done/total unit, rate, time left', without the last two if few."""
    seconds = max(time.monotonic() - self._start, 1e-9)
    rate = (self._done - self._first) / seconds
    size = tqdm.tqdm.format_sizeof if self._scaled else _plain
    if self._total is not None and not self._scaled and self._total < _FEW:
      return f'{size(self._done)}/{size(self._total)} {self._unit}'
    if self._total is None:
      return f'{size(self._done)} {self._unit}, {size(rate)} {self._unit}/s'
    left = (self._total - self._done) / rate if rate else float('inf')
    clock = tqdm.tqdm.format_interval(left) if left < 1e8 else '?'
    return (
      f'{size(self._done)}/{size(self._total)} {self._unit}, '
      f'{size(rate)} {self._unit}/s, {clock} left'
    )

  def write(self, line: str):
    """Prints a line above the bar."""
    tqdm.tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()

  def __enter__(self):
    return self

  def __exit__(self, *exc):
    self._bar.close()


def _plain(x: float) -> str:
  return f'{x:,.0f}' if x >= 100 or x == int(x) else f'{x:.3g}'
