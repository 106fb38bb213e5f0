"""Prints the TPU compiler's estimates of a training step, without a TPU.

  python benchmarks/tpu/aot.py --folder=DIR [--chips=v5e,v5p,v4] \\
    [--sizes=base,large] [--lengths=128,512] [--tokens=8192]
  python benchmarks/tpu/aot.py --folder=DIR --parts=flax --flax_python=PYTHON
  python benchmarks/tpu/aot.py --folder=DIR --parts=layers,dropout,full

The step of bert_jax.main for configs/base.py and large.py (dropout 0.1,
bfloat16, rng=rbg), data parallel over four chips, --tokens per chip. Two and
four layers are compiled and extrapolated linearly to all layers. Nothing here
is a measurement; `estimate.py` describes how ops that the compiler does not
cost are added.

CMU: model FLOPs per estimated cycle, relative to those of an 8192^3 product in
bfloat16 compiled for the same chip. First with the compiler's cycles alone,
then with kernels, then with random bits, gathers and scatters. The goals are
for the second.

--parts: `steps` is that table. `layers` divides a layer's cycles, without
kernels, into products with what is fused into them and other ops, relative to
its model FLOPs at the chip's peak. `flax` compares with FlaxBertForPreTraining,
compiled by the libtpu of --flax_python (which has jax[tpu], flax, optax and
transformers 4.57). `dropout` prints the cost of dropout, and whether the random
bits per chip grow with the number of chips. `memory` is the largest batch per
chip, of ours and FlaxBert (it needs --flax_python, too). `full` compiles all
layers of the first case to check the extrapolation.

Programs are kept in DIR and not compiled again. One compilation takes one to
four minutes on two cores.
"""

import argparse

import aot_programs
import aot_tables

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
PARTS = {
  'steps': aot_tables.steps,
  'layers': aot_tables.layers,
  'flax': aot_tables.flax,
  'dropout': aot_tables.dropout,
  'memory': aot_tables.memory,
  'full': aot_tables.full,
}


def parse():
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

  some('--parts', [*PARTS], 'steps')
  some('--chips', [*SLICES], 'v5e,v5p,v4')
  some('--sizes', ['base', 'large'], 'base,large')
  some('--lengths', ['128', '512'], '128,512')
  parser.add_argument('--tokens', type=int, default=8192)
  parser.add_argument('--folder', required=True)
  parser.add_argument('--flax_python')
  args = parser.parse_args()
  if {'flax', 'memory'} & {*args.parts} and not args.flax_python:
    parser.error('--parts=flax and memory need --flax_python.')
  return args


def main():
  args = parse()
  programs = aot_programs.Programs(args.folder, args.flax_python)
  cases = [
    aot_programs.settings_of(
      SLICES[chip], size, int(length), CHIPS * args.tokens // int(length)
    )
    for chip in args.chips
    for size in args.sizes
    for length in args.lengths
  ]
  for part in args.parts:
    print(f'\n{part}', flush=True)
    PARTS[part](programs, cases)


if __name__ == '__main__':
  main()
