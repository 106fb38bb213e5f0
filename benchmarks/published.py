"""Predicts the speed of runs that others have published.

  python benchmarks/published.py --programs=FOLDER [ROW ...]

What is predicted is our own training step on that chip, what is published are
the programs of others: each row says how they differ. A TPU's prediction comes
from steps with 2 and 4 layers, compiled for a slice that is not there and kept
in FOLDER, and reaches from collectives wholly after the computation to wholly
behind it; a GPU's is a share of its peak. A row is comparable where both count
padded sequences in 16 bits and the program is known to be tuned: there the goal
is an error of 25 % at most, of the middle of the range. About five minutes a row
of TPUs on two cores, where FOLDER is empty.
"""

import argparse
import dataclasses
import sys

import aot_programs

from bert_jax import errors, estimate
from bert_jax import topology as topology_lib

GOAL = 0.25
BATCH = 256  # of the paper
DAYS = 4  # of the paper's runs, 1M updates


@dataclasses.dataclass(frozen=True)
class Row:
  """A published run.

  Attributes:
    size: base or large.
    lengths: {tokens of a sequence: share of the updates}.
    topology: to predict on.
    batch_size: of the prediction, sequences.
    published: sequences per second and chip.
    comparable: whether the goal holds.
    differs: what the other program does otherwise.
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


PAPER = 'whole run of 2018 with input and checkpoints; float32 activations'
# MLPerf's results by the chips that they took, the A100's as the authors of the
# two programs report them, the paper's from its appendix A.2.
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
  if not topology.is_tpu:
    flops = aot_programs.flops(settings) * topology.devices
    return estimate.gpu_step(flops, topology.chip, topology.chips)
  _, cost = programs.line(settings)
  return estimate.tpu_step(cost, topology.chip)


def predict(row: Row, programs) -> tuple[float, float, float]:
  """Returns (lowest, middle, highest) sequences per second and chip."""
  steps = [(share, step(row, s, programs)) for s, share in row.lengths.items()]
  low = sum(share * s.low for share, s in steps)  # seconds of an update
  high = sum(share * s.high for share, s in steps)
  of_chip = row.batch_size / topology_lib.parse(row.topology).chips
  least, most = of_chip / high, of_chip / low
  return least, (least + most) / 2, most


def line(name: str, row: Row, found: tuple[float, float, float]) -> str:
  """Returns a row of the table."""
  error = found[1] / row.published - 1
  goal = 'no goal'
  if row.comparable:
    goal = 'met' if abs(error) <= GOAL else 'MISSED'
  lengths = '+'.join(map(str, row.lengths))
  low, middle, high = (f'{x:.1f}' for x in found)
  return (
    f'| {name} | {row.size} {lengths} | {low} to {high} | {middle} | '
    f'{row.published:.1f} | {error:+.0%} | {goal} | {row.differs} |'
  )


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('rows', nargs='*', help=f'of {", ".join(ROWS)}')
  parser.add_argument('--programs', required=True, help='folder')
  values = parser.parse_args()
  unknown = [name for name in values.rows if name not in ROWS]
  if unknown:
    parser.error(f'no row {unknown[0]}; there are {", ".join(ROWS)}')
  lines = [
    '| run | model | predicted | middle | published | error | goal | differs |',
    '|' + '---|' * 8,
  ]
  programs = aot_programs.Programs(values.programs, None)
  for name in values.rows or ROWS:
    found = predict(ROWS[name], programs)
    lines.append(line(name, ROWS[name], found))
  print('Sequences per second and chip:\n\n' + '\n'.join(lines))


if __name__ == '__main__':
  try:
    main()
  except errors.UserError as error:
    sys.exit(f'error: {error}')
