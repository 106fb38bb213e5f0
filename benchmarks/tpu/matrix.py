"""Compiles many kinds of runs for TPUs and GPUs, without any.

  python benchmarks/tpu/matrix.py --folder=DIR [--chips=v4,h200] \\
    [--cases='base;packed']

Each cell of the table is a run: all its programs, for sequences of 128 tokens
unless the case says otherwise, are compiled in full by the chip's compiler, as
`bert_jax.main` compiles them before its first step. Models have one layer and
2,000 words; where a case names no size, it is that of BERT-Tiny. Each cell runs
in its own process, so that a compiler that crashes or runs out of memory is
reported.

A cell names the attention of each length. `refused` is a run that bert_jax
refuses with a one-line reason; `kernels refused` one in which XLA's attention
had to replace the kernels; anything else failed. The exit code is 1 if a cell
failed or kernels were refused. Cells are kept in DIR as JSON; only those that
failed are compiled again. A cell takes about half a minute on one core, one to
two minutes for BASE.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import subprocess
import sys

import jax

from bert_jax import config_check, errors, tasks
from bert_jax.config import apply_arguments, recipes
from bert_jax.hardware import accelerators
from bert_jax.parallel import device_mesh
from bert_jax.preflight import compile_step
from bert_jax.runtime import files, machine
from bert_jax.trainer import programs, task, tuning

# {chip: slices of four chips, of sixteen; GPUs: four and eight}
CHIPS = {
  'v2': ('v2:2x2', 'v2:4x4'),
  'v3': ('v3:2x2', 'v3:4x4'),
  'v4': ('v4:2x2x1', 'v4:2x2x4'),
  'v5e': ('v5e:2x2', 'v5e:4x4'),
  'v5p': ('v5p:2x2x1', 'v5p:2x2x4'),
  'v6e': ('v6e:2x2', 'v6e:4x4'),
  'tpu7x': ('tpu7x:2x2x1', 'tpu7x:2x2x4'),
  'a100-40gb': ('a100-40gb:4', 'a100-40gb:8'),
  'h200': ('h200:4', 'h200:8'),
  'rtx4090': ('rtx4090:4', 'rtx4090:8'),
  'rtx5090': ('rtx5090:4', 'rtx5090:8'),
}
ROWS = 64  # of a batch
SECONDS = 1800  # for a cell, at most
FAST = 'dtype=bfloat16,rng=rbg,'
MODERN = FAST + 'body=modern,num_layers=2,'
# Chips with attention kernels; the others always use XLA's attention.
KERNELS = tuple(chip for chip in CHIPS if chip not in ('v2', 'v3'))


@dataclasses.dataclass(frozen=True)
class Case:
  """A kind of run.

  Attributes:
    size: as in `config.read_size`.
    kind: pretraining; or finetuning, of classes.
    arguments: arguments of the config.
    chips: those to compile for, from `CHIPS`.
    lengths: tokens per sequence in each phase.
    devices: number of devices used of the slice; None is all.
    large_slice: whether the slice has sixteen chips, not four.
    slices: number of slices.
  """

  size: str = 'tiny'
  kind: str = 'pretraining'
  arguments: str = FAST
  chips: tuple[str, ...] = tuple(CHIPS)
  lengths: tuple[int, ...] = (128,)
  devices: int | None = None
  large_slice: bool = False
  slices: int = 1


CASES = {
  'one device': Case(devices=1),
  # Kernels of narrower models are too small for rings.
  '16 chips, width 512': Case('2x512x8', large_slice=True),
  'two slices': Case(slices=2),
  'packed, float32': Case(arguments='pack=3'),
  'packed, threefry, micro-batches': Case(
    arguments='dtype=bfloat16,pack=3,accumulate=2,sampled_words=1000'
  ),
  'left to right, remat=layer': Case(
    arguments=FAST + 'kind=ltr,nsp=false,remat=layer'
  ),
  'clipped micro-batches, remat=products': Case(
    arguments=FAST + 'accumulate=2,clip_unit=micro_batch,remat=products'
  ),
  'no dropout': Case(arguments=FAST + 'attention_dropout=0,model.dropout=0'),
  'lengths 100 and 384': Case(lengths=(100, 384)),
  'base, model=2': Case('base', arguments=FAST + 'mesh.model=2'),
  "base, XLA's attention": Case(
    'base', arguments=FAST + 'attention=xla', chips=KERNELS
  ),
  'base, float32': Case('base', arguments='', chips=KERNELS),
  'base': Case('base', lengths=(128, 512)),
  'small, float32': Case('small', arguments='', lengths=(128, 512)),
  'heads of 256': Case('6x768x3', lengths=(128, 512)),
  'packed 512, model=2, two slices': Case(
    arguments=FAST + 'pack=3,mesh.model=2', lengths=(512,), slices=2
  ),
  'length 1024': Case(
    arguments=FAST + 'max_positions=1024', lengths=(1024,), devices=1
  ),
  'right to left, norm=pre': Case(
    arguments=FAST + 'kind=rtl,nsp=false,norm=pre'
  ),
  'fine-tuning': Case(kind='finetuning'),
  # A layer that sees all, and one that looks through a window.
  'modern, 512 and 1024': Case(
    '2x768x12', arguments=MODERN + 'max_positions=1024', lengths=(512, 1024)
  ),
  'modern, 8192': Case(
    '2x768x12', arguments=MODERN + 'max_positions=8192', lengths=(8192,)
  ),
}


def make_config(case: Case):
  """Returns the config of a case, with one layer by default."""
  c = getattr(recipes, case.kind)(case.size)
  c.model.num_layers = 1
  c.data.vocab_size = 2000
  c.update_from_flattened_dict(
    {
      f'phases.{name}': values[: len(case.lengths)]
      for name, values in c.phases.items()
    }
  )
  apply_arguments(c, f'batch_size={ROWS},{case.arguments}')
  c.phases.seq_length = case.lengths
  config_check.check(c)
  return c


def compile_cell(chip: str, case: Case) -> str:
  """Compiles a run; returns the text of its cell."""
  c = make_config(case)
  topology = accelerators.parse(CHIPS[chip][case.large_slice], case.slices)
  try:
    devices = compile_step.describe_devices(topology)[: case.devices]
    mesh = device_mesh.make_mesh(c.mesh.model, devices)
    objective = tasks.get(c).make_objective(c)
    start = programs.list_start(c, objective, mesh)
    found = programs.compile_run(
      *(c, objective, mesh, start, task.list_phases(c)),
      say,
    )
  except errors.UserError as error:
    return f'refused: {error}'
  if problem := describe_failure(found.values()):
    return problem
  said = []
  for phase in task.list_phases(c):
    chosen = found[phase].how
    if chosen != tuning.tune(objective, mesh, phase).how:
      return f'kernels refused at length {phase.seq_length}'
    said.append(chosen.attention)
  return ', '.join(said)


def describe_failure(results) -> str | None:
  """Returns the text of a cell with a program that was not compiled."""
  for result in results:
    for outcome in result.outcomes:
      if why := programs.describe_problem(outcome):
        return f'FAILED: the {outcome.program.title} {why}'
  return None


def say(line):
  print(line, file=sys.stderr, flush=True)


def run_cell(folder: str, chip: str, name: str) -> str:
  """Returns the text of a cell, compiled anew unless it is there and good."""
  slug = ''.join(x if x.isalnum() else '_' for x in f'{chip} {name}')
  path, said = os.path.join(folder, f'{slug}.json'), 'FAILED'
  if os.path.exists(path):
    said = files.load_json(path)
  if said.startswith('FAILED'):
    said = compile_apart(chip, name)
    files.write_json(path, said)
  say(f'{chip}, {name}: {said}')
  return said


def compile_apart(chip: str, name: str) -> str:
  """Returns the text of a cell, compiled in another process."""
  command = [sys.executable, __file__, '--cell', chip, name]
  try:
    done = subprocess.run(
      command, capture_output=True, text=True, timeout=SECONDS
    )
  except subprocess.TimeoutExpired:
    return f'FAILED: not compiled in {SECONDS} s'
  if done.returncode:
    tail = done.stderr.strip().splitlines()[-1:]
    return f'FAILED: exit code {done.returncode}: {"".join(tail)}'
  return done.stdout.strip()


def table(cells, chips, cases) -> list[str]:
  """Returns the lines of the table of {(chip, case): text}."""
  rows = [[case, *(cells.get((x, case), '') for x in chips)] for case in cases]
  rows = [['run', *chips], ['---'] * (len(chips) + 1), *rows]
  return [f'| {" | ".join(row)} |' for row in rows]


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--folder', help='folder for the results of cells')
  parser.add_argument('--chips', default=','.join(CHIPS))
  parser.add_argument('--cases', help='names; default: all')
  parser.add_argument('--workers', type=int, default=os.cpu_count())
  parser.add_argument('--cell', nargs=2, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.cell:
    # Only the compiler is used; do not occupy accelerators of this machine.
    jax.config.update('jax_platforms', 'cpu')
    chip, name = args.cell
    with contextlib.redirect_stdout(sys.stderr):  # progress
      said = compile_cell(chip, CASES[name])
    print(said)
    return 0
  if not args.folder:
    parser.error('--folder is missing')
  chips = args.chips.split(',')
  cases = args.cases.split(';') if args.cases else list(CASES)
  for given, known in ((chips, CHIPS), (cases, CASES)):
    if unknown := [name for name in given if name not in known]:
      parser.error(f'no {unknown[0]!r}; there are {"; ".join(known)}')
  there = {
    True: machine.is_installed(machine.TPU_COMPILER),
    False: any(map(machine.is_installed, machine.CUDA_COMPILERS.values())),
  }
  for chip in chips:  # without its compiler, all cells would be `refused`
    if not there[accelerators.parse(CHIPS[chip][0]).is_tpu]:
      parser.error(
        f'the compiler for {chip} is missing: bert_jax[tpu, gpu-compiler]'
      )
  os.makedirs(args.folder, exist_ok=True)
  pairs = [(x, case) for case in cases for x in chips if x in CASES[case].chips]
  with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
    said = pool.map(lambda pair: run_cell(args.folder, *pair), pairs)
    cells = dict(zip(pairs, said, strict=True))
  print('\n'.join(table(cells, chips, cases)))
  bad = [x for x in cells.values() if x.startswith(('FAILED', 'kernels'))]
  print(f'verdict: {f"{len(bad)} of {len(cells)} failed" if bad else "ok"}')
  return 1 if bad else 0


if __name__ == '__main__':
  sys.exit(main())
