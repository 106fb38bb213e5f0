"""Works through the runs of a sweep, together with other processes.

Each process does one run at a time. It claims a run's directory before it
starts the run; runs that others have claimed are theirs. When nothing is left
to claim, it waits for the others and takes over what they leave unfinished, so
every process ends with the whole table.
"""

import os
import time
from collections.abc import Callable

from bert_jax import errors
from bert_jax.runtime import lock, signals, storage
from bert_jax.sweep import grid, process, states, table

_CLAIM = '.sweep.lock'
_LOOK, _LOOK_REMOTE = 1.0, 15.0  # seconds between looks at the runs' files
_TELL = 60.0  # seconds between lines


class Sweep:
  """What this process knows of a sweep.

  Args:
    directory: that of the sweep, local or in a bucket.
    runs: those of the grid.
    make_command: run -> the program that does it, and its arguments, except
      for --workdir.

  Attributes:
    failed: {name of a run: exit code}, of those that failed here.
    found: {name of a run: its state} at the last look.
  """

  def __init__(
    self,
    directory: str,
    runs: list[grid.Run],
    make_command: Callable[[grid.Run], list[str]],
  ):
    self._directory, self._runs = directory, runs
    self._make_command = make_command
    self._remote = storage.is_remote(directory)
    self._told = 0.0
    self._waiting = False  # for other processes
    self.failed: dict[str, int] = {}
    self.found: dict[str, states.State] = {}

  def finish(self, note_done: Callable[[], None]):
    """Returns when every run is done, here or elsewhere, or has failed here.

    Args:
      note_done: is called after each run that was done here.

    Raises:
      errors.Interrupted: after a signal; the current run was saved.
    """
    with signals.recording() as stop:
      self.look()
      while left := self._list_left():
        if not self._do_one(left, stop, note_done):
          self._wait(left)

  def look(self):
    """Reads how far all runs are; of those that are done, only once."""
    for run in self._runs:
      known = self.found.get(run.name)
      if known is None or known.results is None:
        self.found[run.name] = states.look(self._path(run))
    for name in [x for x in self.failed if self.found[x].results]:
      del self.failed[name]  # another process was luckier

  def render(self) -> list[str]:
    """Returns the table as lines."""
    return table.render(self._runs, self.found, self.failed)

  def _path(self, run) -> str:
    return os.path.join(self._directory, run.name)

  def _list_left(self) -> list[grid.Run]:
    return [
      run
      for run in self._runs
      if self.found[run.name].results is None and run.name not in self.failed
    ]

  def _do_one(self, left, stop, note_done) -> bool:
    """Does the first run that nobody else does; returns whether there was one."""
    for run in left:
      _check(stop)
      with lock.attempt(os.path.join(self._path(run), _CLAIM)) as held:
        if not held:
          continue
        self.look()  # another process may just have done it
        if self.found[run.name].results is None:
          self._do(run, stop)
          note_done()
        return True
    return False

  def _do(self, run, stop):
    done = sum(x.results is not None for x in self.found.values())
    _say(f'{run.name} ({done + 1} of {len(self._runs)})')
    self._told, self._waiting = time.monotonic(), False
    command = [*self._make_command(run), f'--workdir={self._path(run)}']
    code, lines = process.run(
      command, self._path(run), stop, lambda: self._show(run)
    )
    self.look()
    if stop.signum is not None and code != 0:
      _say(f'{run.name}: {lines[-1] if lines else process.describe(code)}')
    _check(stop)
    results = self.found[run.name].results
    if code or results is None:
      self.failed[run.name] = code or errors.BUG
      _say(f'  FAILED ({process.describe(code)}):')
      for line in lines:
        _say(f'    {line}')
    else:
      [[metric, value], *_] = results['metrics'].items()
      _say(f'  {metric} {value:.4f}')

  def _show(self, run):
    """Prints now and then how far a run is."""
    now = time.monotonic()
    if now - self._told >= _TELL:
      self._told = now
      self.look()
      _say(f'  {table.describe_progress(self.found[run.name])}')

  def _wait(self, left):
    """Waits a little for runs that other processes do."""
    if not self._waiting:
      names = errors.listing([run.name for run in left], most=2)
      _say(f'waiting for other processes: {names}')
    self._waiting = True
    time.sleep(_LOOK_REMOTE if self._remote else _LOOK)
    self.look()


def _say(line: str):
  print(line, flush=True)


def _check(stop):
  if stop.signum is not None:
    raise errors.Interrupted(stop.signum, signals.RESUME)
