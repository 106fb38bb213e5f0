"""How far actual times may be from estimated ones.

A useful range must include what is not modelled: waiting for memory within ops,
sorts and copies, latency of collectives, gaps between steps. None of these are
known before a run, so the factors are judged by the two published runs that can
be compared (`a71d0fb:benchmarks/tpu/published.py`), and are wider for chips that no run
checks.
"""

import dataclasses

# No transformer on TPUs is known to have reached more of the peak: MaxText
# publishes 71 % at most (v5p), MLPerf's BERT 59 % (v4).
MOST_OF_PEAK = 0.8


@dataclasses.dataclass(frozen=True)
class Range:
  """Factors that turn an estimated time into a range.

  Attributes:
    fast: factor of the time with all collectives overlapped with computation.
    slow: factor of the time with none overlapped.
    why: the reason, a line to print.
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
  # On v2 to v5p it is 88 to 100 %, so the chip may be faster by a third.
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
# Factors of the calibrated time, since the measured run may have had another
# model, length or slice.
_CALIBRATED = 0.85, 1.2


def get_range(chip: str) -> Range:
  """Returns the range for a TPU, by `chips.Chip.name`."""
  return _RANGES[chip]


def get_calibrated(entry: dict) -> Range:
  """Returns the range for a calibration, from `measured_ratios.read`.

  Both factors are of the time with no collective overlapped with computation.
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
