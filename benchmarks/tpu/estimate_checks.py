"""Checks the estimates as far as possible without an accelerator.

  python benchmarks/tpu/estimate_checks.py --programs=FOLDER \\
    [--steps=v5e:2x2,...]

1. Clock rates. A chip's clock rate times what its matrix units do per cycle
   gives its peak, within 3 %; the product of two 8192 x 8192 matrices takes the
   cycles that the package has for it, within 1 %; at that clock rate it reaches
   87 to 101 % of the peak. Two chips do not: for TPU7x, products that Google
   measured are compared instead, within 10 %; for v6e there is nothing to
   compare.
2. Memory. A step does not read and write more memory than is possible in its
   estimated time: LARGE with 512 tokens on v3 and v4, BASE with 128 on the
   slices of --steps. Compiled with 2 and 4 layers without TPUs and kept in
   FOLDER: some minutes each.
3. Published runs: the comparable rows of published.py.

Finally it prints the range of each chip, which is a judgement and not checked.
The exit code is 1 if a check fails.
"""

import argparse
import re
import sys

import aot_programs
import jax
import jax.numpy as jnp
import published
from jax.sharding import SingleDeviceSharding

from bert_jax import errors
from bert_jax.hardware import topology as topology_lib
from bert_jax.preflight import compile_step, error_range, estimate

TOPOLOGIES = 'v2:2x2,v3:2x2,v4:2x2x1,v5e:2x2,v5p:2x2x1,v6e:2x2,tpu7x:2x2x1'
STEPS = 'v5e:2x2,v5p:2x2x1,v6e:2x2,tpu7x:2x2x1'
LENGTH, ROWS = 128, 64  # of a chip
# TFLOP/s of a device, by rows of square bfloat16 matrices:
# github.com/AI-Hypercomputer/accelerator-microbenchmarks, the folder Ironwood.
MEASURED = {'tpu7x': {4096: 892.9, 16384: 950.1}}
NOTHING = ('v6e',)


def product_cycles(device, n: int) -> int:
  """Returns the compiler's cycles for a product of n x n matrices."""
  placed = SingleDeviceSharding(device)
  x = jax.ShapeDtypeStruct((n, n), jnp.bfloat16, sharding=placed)
  text = jax.jit(lambda a, b: a @ b).lower(x, x).compile().as_text()
  return sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text)))


def clock_line(chip, cycles: dict[int, int]) -> tuple[str, bool]:
  """Checks a chip; returns (a row of the table, whether it is good).

  Args:
    chip: one of `chips`.
    cycles: {rows: cycles of a square product}, of 8192 and those in `MEASURED`.
  """
  units = chip.unit_flops * chip.cycles_per_second / chip.flops
  table = cycles[8192] / chip.product_cycles
  product = 2 * 8192**3 / cycles[8192] * chip.cycles_per_second
  share = product * chip.devices / chip.flops
  good = abs(units - 1) <= 0.03 and abs(table - 1) <= 0.01
  compared = 'of the peak'
  if chip.name in MEASURED:
    ratios = [
      2 * n**3 / cycles[n] * chip.cycles_per_second / 1e12 / speed
      for n, speed in MEASURED[chip.name].items()
    ]
    good &= all(abs(ratio - 1) <= 0.1 for ratio in ratios)
    compared += (
      f'; {", ".join(f"{r:.0%}" for r in ratios)} of measured products'
    )
  elif chip.name in NOTHING:
    compared += '; no measured product is known'
  else:
    good &= 0.87 <= share <= 1.01
  said = 'good' if good else 'BAD'
  if good and chip.name in NOTHING:
    said = 'product not checked'
  text = (
    f'| {chip.name} | {chip.cycles_per_second / 1e9:.2f} | {units:.1%} | '
    f'{cycles[8192] / 1e6:.3f} | {share:.1%} {compared} | '
    f'{said} |'
  )
  return text, good


def memory_line(settings, programs) -> tuple[str, bool]:
  """Checks the memory traffic of a step; returns the same as `clock_line`."""
  topology = topology_lib.parse(settings['topology'])
  _, cost = programs.line(settings)
  step = estimate.estimate_tpu_step(cost, topology)
  seconds = step.seconds - step.parts['collectives']
  speed = topology.chip.hbm_bandwidth / topology.chip.devices
  share = cost.hbm_bytes / speed / seconds
  good = share <= 1
  text = (
    f'| {topology.name} | {settings["size"]} {settings["length"]} | '
    f'{cost.hbm_bytes / 1e9:.2f} | {speed * seconds / 1e9:.2f} | '
    f'{share:.0%} | {"good" if good else "BAD"} |'
  )
  return text, good


def clocks() -> bool:
  print(
    '| chip | GHz | matrix units by the peak | Mcycles of a product '
    '| that is | |'
  )
  print('|' + '---|' * 6)
  all_good = True
  for name in TOPOLOGIES.split(','):
    topology = topology_lib.parse(name)
    device = compile_step.describe_devices(topology)[0]
    sizes = [8192, *MEASURED.get(topology.chip.name, ())]
    cycles = {n: product_cycles(device, n) for n in sizes}
    text, good = clock_line(topology.chip, cycles)
    print(text, flush=True)
    all_good &= good
  return all_good


def memory(names, programs) -> bool:
  print('\n| slice | step | GB of a device | possible | share | |')
  print('|' + '---|' * 6)
  rows = [row for row in published.ROWS.values() if row.comparable]
  cases = [
    (row.topology, row.size, length, row.batch_size)
    for row in rows
    for length in row.lengths
    if topology_lib.parse(row.topology).is_tpu
  ]
  for name in names:
    chips = topology_lib.parse(name).chips
    cases.append((name, 'base', LENGTH, ROWS * chips))
  all_good = True
  for case in cases:
    text, good = memory_line(aot_programs.settings_of(*case), programs)
    print(text, flush=True)
    all_good &= good
  return all_good


def ranges():
  print('\n| chip | fast | slow | why |\n|' + '---|' * 4)
  for name in TOPOLOGIES.split(','):
    chip = name.partition(':')[0]
    found = error_range.get_range(chip)
    print(f'| {chip} | {found.fast:g} | {found.slow:g} | {found.why} |')


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    '--programs', required=True, help='folder of compiled programs'
  )
  parser.add_argument(
    '--steps', default=STEPS, help='slices for the memory check'
  )
  values = parser.parse_args()
  # Only the compiler is used; do not occupy accelerators of this machine.
  jax.config.update('jax_platforms', 'cpu')
  programs = aot_programs.Programs(values.programs, None)
  good = clocks() & memory(values.steps.split(','), programs)
  print()
  rows = [name for name, row in published.ROWS.items() if row.comparable]
  good &= published.show(rows, programs)
  ranges()
  return 0 if good else 1


if __name__ == '__main__':
  try:
    sys.exit(main())
  except errors.UserError as error:
    sys.exit(f'error: {error}')
