"""Prints the TPU compiler's estimates of a training step, without a TPU.

  python benchmarks/tpu/aot.py --folder=DIR [--chips=v5e,v5p,v4] \\
    [--sizes=base,large] [--lengths=128,512] [--tokens=8192]

The step of bert_jax.main for configs/base.py and large.py (dropout 0.1,
bfloat16, rng=rbg), data parallel over four chips, --tokens per chip. Two and
four layers are compiled and extrapolated linearly to all layers. Nothing here
is a measurement; `estimate.py` describes how ops that the compiler does not
cost are added.

CMU: model FLOPs per estimated cycle, relative to those of an 8192^3 product in
bfloat16 compiled for the same chip. First with the compiler's cycles alone,
then with kernels, then with random bits, gathers and scatters. The goals are
for the second.

Programs are kept in DIR and not compiled again. One compilation takes one to
four minutes on two cores.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time

import steps

from bert_jax import tasks
from bert_jax.config import apply_arguments, recipes
from bert_jax.hardware import accelerators
from bert_jax.parallel import device_mesh
from bert_jax.preflight import compile_step, estimate, hlo_cost
from bert_jax.train import task

CHIPS = 4
SLICES = {
  'v2': 'v2:2x2',
  'v3': 'v3:2x2',
  'v4': 'v4:2x2x1',
  'v5e': 'v5e:2x2',
  'v5p': 'v5p:2x2x1',
  'v6e': 'v6e:2x2',
  'tpu7x': 'tpu7x:2x2x1',
}
PREDICTIONS = {128: 20, 512: 76}  # per row, at most, by length
FULL = {'base': 12, 'large': 24}  # layers
FEW = 2, 4  # layers that are compiled, to extrapolate to all
GOALS = {
  ('base', 128): 0.62,
  ('base', 512): 0.60,
  ('large', 128): 0.72,
  ('large', 512): 0.70,
}
GOAL_CHIPS = ('v5e', 'v5p', 'v4')
COSTED = 'computation', 'kernels', 'random bits', 'gathers and scatters'


@dataclasses.dataclass(frozen=True)
class Case:
  """A step.

  Attributes:
    topology: name of a slice, see `accelerators.parse`.
    size: base or large.
    length: tokens per row.
    rows: global batch.
    layers: those of the size, unless fewer are compiled.
  """

  topology: str
  size: str
  length: int
  rows: int
  layers: int

  @property
  def chip(self):
    return accelerators.parse(self.topology).chip

  @property
  def flops(self) -> float:
    """Model FLOPs of the step on one device."""
    c = make_config(self)
    work = tasks.get(c).make_objective(c).flops(task.list_phases(c)[0])
    return work / accelerators.parse(self.topology).devices


def make_config(case: Case):
  """Returns the recipe of configs/base.py or large.py, with one phase."""
  c = apply_arguments(
    recipes.pretraining(case.size),
    f'dtype=bfloat16,rng=rbg,num_layers={case.layers}',
  )
  c.phases.update(
    seq_length=(case.length,),
    max_predictions=(PREDICTIONS[case.length],),
    batch_size=(case.rows,),
    steps=(1_000_000,),
    accumulate=(1,),
  )
  return c


def compile_case(case: Case, path: str):
  """Compiles a step; writes its memory to PATH.json, its text to PATH.hlo."""
  c = make_config(case)
  devices = compile_step.describe_devices(accelerators.parse(case.topology))
  mesh = device_mesh.make_mesh(1, devices=devices)
  found = steps.compile_training(c, task.list_phases(c)[0], mesh)
  if not found.fits:
    sys.exit(f'error: {path} does not fit; give fewer tokens.')
  with open(f'{path}.hlo', 'w') as file:
    file.write(found.text)
  with open(f'{path}.json', 'w') as file:
    json.dump(dataclasses.asdict(found.memory), file)


class Programs:
  """A folder of compiled programs."""

  def __init__(self, folder: str):
    os.makedirs(folder, exist_ok=True)
    self._folder = folder

  def path(self, case: Case) -> str:
    """Returns the path of a program, without .hlo (text) and .json (memory)."""
    name = '-'.join(map(str, dataclasses.astuple(case))).replace(':', '_')
    return os.path.join(self._folder, name)

  def get(self, case: Case):
    """Returns (memory, cost) of a step; compiles it in a process of its own."""
    path = self.path(case)
    if not os.path.exists(f'{path}.json'):
      began = time.monotonic()
      print(f'compiling {os.path.basename(path)} ...', end=' ', flush=True)
      given = json.dumps(dataclasses.asdict(case))
      subprocess.run(
        [sys.executable, __file__, '--compile', given, path],
        env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
        check=True,
      )
      print(f'{time.monotonic() - began:.0f} s', flush=True)
    with open(f'{path}.json') as file, open(f'{path}.hlo') as text:
      memory = compile_step.Memory(**json.load(file))
      return memory, hlo_cost.count_cost(text.read())

  def line(self, case: Case):
    """Returns (memory, cost) of all layers, extrapolated from few of them."""
    along = (*FEW, case.layers)
    found = [self.get(dataclasses.replace(case, layers=n)) for n in FEW]
    memories, costs = zip(*found, strict=True)
    return tuple(
      hlo_cost.extrapolate(*pair, along) for pair in (memories, costs)
    )


def print_steps(programs, cases):
  """Prints the cycles of whole steps, and their CMU."""
  head(
    'chip | size | S | cycles M | kernels M | bits M | moves M | '
    'collectives ms | CMU | + kernels | + rest | temporary GiB | goal'
  )
  for case in cases:
    memory, cost = programs.line(case)
    topology = accelerators.parse(case.topology)
    step = estimate.estimate_tpu_step(cost, topology, flops=case.flops)
    parts = step['step_seconds_parts']
    clock = case.chip.cycles_per_second
    shares = [
      steps.compute_cycle_utilisation(
        case.flops, sum(parts[name] for name in COSTED[:n]), case.chip
      )
      for n in (1, 2, 4)
    ]
    row(
      *(case.chip.name, case.size, case.length),
      *(f'{parts[name] * clock / 1e6:.2f}' for name in COSTED),
      f'{parts["collectives"] * 1e3:.2f}',
      *(f'{share:.3f}' for share in shares),
      f'{memory.temporary / 2**30:.2f}',
      judge(case, shares[1]),
    )


def judge(case: Case, share: float) -> str:
  if case.chip.name not in GOAL_CHIPS:
    return '-'
  goal = GOALS[case.size, case.length]
  return f'{goal:.2f} {"met" if share >= goal else "MISSED"}'


def row(*cells):
  print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)


def head(names):
  print(f'| {names} |')
  row(*('---' for _ in names.split(' | ')))


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )

  def some(name, values, default):
    def words(text):
      found = text.split(',')
      if not set(found) <= set(values):
        allowed = ', '.join(values)
        raise argparse.ArgumentTypeError(f'{text!r}; allowed are {allowed}')
      return found

    parser.add_argument(name, type=words, default=default.split(','))

  some('--chips', SLICES, 'v5e,v5p,v4')
  some('--sizes', FULL, 'base,large')
  some('--lengths', [*map(str, PREDICTIONS)], '128,512')
  parser.add_argument('--tokens', type=int, default=8192)
  parser.add_argument('--folder', help='of compiled programs')
  parser.add_argument('--compile', nargs=2, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if not (args.folder or args.compile):
    parser.error('--folder is missing')
  return args


def main():
  args = parse_arguments()
  if args.compile:
    given, path = args.compile
    return compile_case(Case(**json.loads(given)), path)
  cases = [
    Case(SLICES[chip], size, int(n), CHIPS * args.tokens // int(n), FULL[size])
    for chip in args.chips
    for size in args.sizes
    for n in args.lengths
  ]
  print_steps(Programs(args.folder), cases)


if __name__ == '__main__':
  main()
