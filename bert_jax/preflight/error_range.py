"""How far estimated times may be from true ones.

A range that somebody can plan with must hold what is not modelled, too:
waiting for memory within ops, sorts and copies, latency of collectives, gaps
between steps. None of it is known before a run, so the factors are judged:
from the two published runs that can be compared (`benchmarks/tpu/published.py`),
and wider where nothing checks the estimate of a chip.
"""

import dataclasses

# No transformer on TPUs is known to have reached more of the peak: MaxText
# publishes 71 % at most (v5p), MLPerf's BERT 59 % (v4).
MOST_OF_PEAK = 0.8


@dataclasses.dataclass(frozen=True)
class Range:
  """Factors of an estimated time.

  Attributes:
    fast: of the time with all collectives overlapped with computation.
    slow: of the time with none overlapped.
    why: a line for people.
  """

  fast: float
  slow: float
  why: str

  @property
  def text(self) -> str:
    """Returns the factors and their reason."""
    return (
      f'{self.fast:g} x the time with all collectives overlapped with '
      f'computation to {self.slow:g} x the time with none overlapped: '
      f'{self.why}'
    )


_UNCHECKED = 'no run on this chip was compared'
_RANGES = {
  'v2': Range(0.8, 2.0, f'{_UNCHECKED}; the one of 2018 is not explained'),
  'v3': Range(0.85, 1.35, 'one published run, of another program, is inside'),
  'v4': Range(0.85, 1.35, 'one published run, of another program, is inside'),
  'v5e': Range(0.8, 1.6, _UNCHECKED),
  'v5p': Range(0.8, 1.6, f'{_UNCHECKED}; its clock is inferred'),
  # 88 to 100 % on v2 to v5p: the chip may be faster by a third.
  'v6e': Range(
    0.65,
    1.7,
    f'{_UNCHECKED}; its clock is inferred, and by it large products are '
    'expected to reach 70 % of the peak only',
  ),
  'tpu7x': Range(
    0.8,
    1.7,
    'no run on this chip was compared, only published speeds of products; its '
    'clock is inferred',
  ),
}
# Of the time that a measured run of the chip suggests; another model, length or
# slice was not measured.
_CALIBRATED = 0.85, 1.2


def get_range(chip: str) -> Range:
  """Returns the range of a TPU of `chips`."""
  return _RANGES[chip]


def get_calibrated(entry: dict) -> Range:
  """Returns the range of a chip of which a run was measured.

  Both factors are of the time with no collective overlapped with computation.

  Args:
    entry: of `calibrate.read`.
  """
  fast, slow = _CALIBRATED
  least, most = min(entry['ratios']), max(entry['ratios'])
  times = f'{least:.2f}'
  if f'{most:.2f}' != times:
    times += f' to {most:.2f}'
  return Range(
    least * fast,
    most * slow,
    f'corrected by a run on {entry["topology"]} of {entry["date"]}, which took '
    f'{times} times what the model says; {fast:g} to {slow:g} of that',
  )
