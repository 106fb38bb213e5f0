"""Times turns of a training loop from inside it; see ../finetuning.py."""

from collections.abc import Callable

import numpy as np
import pipe

_WARM = 8  # steps


class Turns:
  """Lets a loop run as many steps as each line of standard input says.

  The loop calls `end_step` after each step; it returns when the next step may
  begin. The answers are those of `pipe.serve`, with `rows`, `tokens` and
  `padded`: of the turn's batches, without and with padding.
  """

  def __init__(self):
    self._answer = pipe.open_answers()
    self._created = pipe.read_clocks()
    self._sizes: dict[int, np.ndarray] = {}
    self._step, self._left = 0, 1
    self._start = self._asked = None

  def note_batch(self, step: int, mask: np.ndarray):
    """Takes the input mask [B, S] of a step's batch, steps counted from 0."""
    self._sizes[step] = np.array([len(mask), mask.sum(), mask.size])

  def end_step(self, facts: Callable[[], dict], finish: Callable[[], float]):
    """Counts a step.

    Args:
      facts: returns versions and device of this process.
      finish: waits until the step is done; returns its loss.
    """
    self._step += 1
    self._left -= 1
    if self._left:
      return
    loss = finish()
    if self._step == 1:
      self._first = pipe.measure_since(self._created)['seconds']
      self._left = _WARM
    elif self._asked is None:
      self._answer(facts() | {'first': self._first})
      self._wait()
    elif self._start is None:
      self._left, self._start = self._asked, pipe.read_clocks()
    else:
      self._report(loss)
      self._wait()

  def _wait(self):
    """Waits for the next turn, which begins with a step that is not timed."""
    try:
      self._asked = int(input())
    except EOFError:
      raise SystemExit from None
    self._left, self._start = 1, None

  def _report(self, loss):
    found = pipe.measure_since(self._start)
    done = range(self._step - self._asked, self._step)
    sizes = sum(self._sizes.pop(step) for step in done)
    names = 'rows', 'tokens', 'padded'
    counts = dict(zip(names, map(int, sizes), strict=True))
    self._answer(found | counts | {'loss': loss})
