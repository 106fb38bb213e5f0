"""Predicts the speed of runs that others have published.

  python benchmarks/tpu/published.py --programs=FOLDER [ROW ...]

The prediction is for our training step on that chip, the published speed is of
another program: each row says how they differ. For a TPU, steps with 2 and 4
layers are compiled without the hardware and kept in FOLDER; for a GPU, the
prediction is a share of its peak. Both have the error range that preflight
prints. A row is comparable if both count padded sequences in 16 bits and the
other program is known to be tuned: such a row must lie inside the range, else
the exit code is 1. A TPU row takes about five minutes on two cores if FOLDER is
empty.
"""

import argparse
import dataclasses
import sys

import aot_programs

from bert_jax import errors
from bert_jax.hardware import topology as topology_lib
from bert_jax.preflight import estimate

BATCH = 256  # of the paper
DAYS = 4  # of the paper's runs, 1M updates


@dataclasses.dataclass(frozen=True)
class Row:
  """A published run.

  Attributes:
    size: base or large.
    lengths: {tokens per sequence: share of the updates}.
    topology: slice to predict for.
    batch_size: sequences per batch in the prediction.
    published: sequences per second and chip.
    comparable: whether it must lie inside the range.
    differs: what the other program does differently.
  """

  size: str
  lengths: dict[int, float]
  topology: str
  batch_size: int
  published: float
  comparable: bool
  differs: str


def paper(chips: int) -> float:
  """Returns sequences per second and chip of the paper's runs."""
  return 1e6 * BATCH / (DAYS * 24 * 3600) / chips


PAPER = 'whole run of 2018 with input and checkpoints; not explained'
# MLPerf: results divided by the number of chips. A100: as reported by the
# authors of the two programs. Paper: from its appendix A.2.
ROWS = {
  'v3': Row('large', {512: 1}, 'v3:2x2', 64, 66.6, True, 'MLPerf: LAMB'),
  'v4': Row('large', {512: 1}, 'v4:2x2x1', 64, 160, True, 'MLPerf: LAMB'),
  'v4-buckets': Row(
    *('large', {512: 1}, 'v4:2x2x1', 64, 225, False),
    'MLPerf: LAMB; batches by length, so less padding',
  ),
  'h100': Row(
    *('large', {512: 1}, 'h100:8', 256, 970, False),
    'MLPerf: LAMB; FP8; no padding, about half of the tokens',
  ),
  'h200': Row(
    *('large', {512: 1}, 'h200:8', 256, 1011, False),
    'MLPerf, 998 to 1024: LAMB; FP8; no padding, about half of the tokens',
  ),
  'a100-torch': Row(
    *('large', {128: 1}, 'a100-80gb:8', 512, 580, True),
    'PyTorch: LAMB',
  ),
  'a100-paddle': Row(
    *('large', {128: 1}, 'a100-80gb:8', 512, 694, True),
    'PaddlePaddle: LAMB',
  ),
  'paper-base': Row(
    *('base', {128: 0.9, 512: 0.1}, 'v2:4x4', BATCH, paper(16), False),
    PAPER,
  ),
  'paper-large': Row(
    *('large', {128: 0.9, 512: 0.1}, 'v2:8x8', BATCH, paper(64), False),
    PAPER,
  ),
}


def step(row: Row, length: int, programs) -> estimate.Step:
  """Returns the estimated step of one length; programs: `Programs`."""
  topology = topology_lib.parse(row.topology)
  settings = aot_programs.settings_of(
    row.topology, row.size, length, row.batch_size
  )
  flops = aot_programs.flops(settings) * topology.devices
  if not topology.is_tpu:
    return estimate.estimate_gpu_step(flops, topology.chip, topology.chips)
  _, cost = programs.line(settings)
  return estimate.estimate_tpu_step(cost, topology, flops=flops)


def predict(row: Row, programs) -> tuple[float, float, float]:
  """Returns sequences per second and chip: (slowest, by the model, fastest)."""
  steps = [(share, step(row, s, programs)) for s, share in row.lengths.items()]
  of_chip = row.batch_size / topology_lib.parse(row.topology).chips
  return tuple(
    of_chip / sum(share * getattr(s, end) for share, s in steps)
    for end in ('high', 'seconds', 'low')
  )


def verdict(row: Row, found: tuple[float, float, float]) -> str:
  """Returns whether the published speed lies inside the range."""
  if found[0] <= row.published <= found[2]:
    return 'yes' if row.comparable else 'yes, not comparable'
  return 'NO' if row.comparable else 'no, not comparable'


def line(name: str, row: Row, found: tuple[float, float, float]) -> str:
  """Returns a row of the table."""
  least, model, most = found
  lengths = '+'.join(map(str, row.lengths))
  return (
    f'| {name} | {row.size} {lengths} | {least:.1f} to {most:.1f} | '
    f'{most / least:.1f} | {model:.1f} | {row.published:.1f} | '
    f'{row.published / model - 1:+.0%} | {verdict(row, found)} '
    f'| {row.differs} |'
  )


def show(names, programs) -> bool:
  """Prints the table; returns whether all comparable rows are inside."""
  lines = [
    '| run | model | range | width | model says | published | '
    'difference | inside | differs |',
    '|' + '---|' * 9,
  ]
  good = True
  for name in names:
    found = predict(ROWS[name], programs)
    lines.append(line(name, ROWS[name], found))
    good &= verdict(ROWS[name], found) != 'NO'
  print('Sequences per second and chip:\n\n' + '\n'.join(lines))
  return good


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    'rows', nargs='*', help=f'default: all of {", ".join(ROWS)}'
  )
  parser.add_argument(
    '--programs', required=True, help='folder of compiled programs'
  )
  values = parser.parse_args()
  unknown = [name for name in values.rows if name not in ROWS]
  if unknown:
    parser.error(f'no row {unknown[0]}; there are {", ".join(ROWS)}')
  programs = aot_programs.Programs(values.programs, None)
  return 0 if show(values.rows or ROWS, programs) else 1


if __name__ == '__main__':
  try:
    sys.exit(main())
  except errors.UserError as error:
    sys.exit(f'error: {error}')
