"""Prints the package's table of kernel schedules, or checks it.

  for dtype in bfloat16 float32; do
    python benchmarks/tpu/kernels.py --topology=v5e:2x2 --dtype=$dtype \\
      --sizes=base --generators=none,rbg,threefry
  done | tee v5e.txt
  python benchmarks/tpu/kernel_schedules.py [--check] v5e.txt v4.txt ...

Reads the output of benchmarks/tpu/kernels.py for BASE and several chips, and
prints the rows of `bert_jax.preflight.kernel_schedules.TIMES` for them. With
--check, only rows are printed that are missing from the package or differ by
more than 3 %; if there are any, the exit code is 1. Kernels with heads of other
sizes than 64 are compared with `HEADS`, and printed as its rows if those of 64
are in the files, too.
"""

import argparse
import re
import sys

from bert_jax import config
from bert_jax.hardware import chips
from bert_jax.preflight import kernel_schedules

TOKENS = 8192
# For T tokens in rows of S and a hidden size of D: these times T S D.
FLOPS = {'forward': 4, 'backward': 10}
TOLERANCE = 0.03
_HEAD = re.compile(r'(\w+), (?:(bfloat16|float32), )?[\d,]+ tokens')
# base 128 rbg forward, Mcycles: schedule, products, bytes; times
_LINE = re.compile(
  r'base +(\d+) +(none|rbg|threefry) +(forward|backward)'
  r'(?: heads of (\d+))? +([\d.]+) +([\d.]+) +'
)
# Name in HLO, and products of the matrix unit for one of the type.
_TYPES = {None: ('bf16', 1), 'bfloat16': ('bf16', 1), 'float32': ('f32', 6)}


def read(lines, head_size: int = 64) -> list[tuple]:
  """Returns rows of the table, from the output of benchmarks/tpu/kernels.py.

  Only BASE with heads of this size is used. A case that lacks one of its two kernels is skipped.
  """
  chip, dtype, passes, found = None, None, 0, {}
  for line in lines:
    head = _HEAD.match(line)
    if head:
      chip, (dtype, passes) = head[1], _TYPES[head[2]]
    case = _LINE.match(line.strip())
    if case and int(case[4] or 64) == head_size:
      length, generator, which, _, schedule, products = case.groups()
      exact = _products(chip, int(length), which)
      if abs(passes * exact - float(products)) > 0.001:
        raise ValueError(
          f'{passes * exact:.4f} Mcycles of products, not: {line.strip()}'
        )
      both = found.setdefault((chip, generator, dtype, int(length)), {})
      both[which] = round(float(schedule) / exact, 2)
  order = [chip.name for chip in chips.CHIPS]
  keys = sorted(
    (key for key, both in found.items() if len(both) == 2),
    key=lambda key: (order.index(key[0]), *key[1:]),
  )
  return [(*k, found[k]['forward'], found[k]['backward']) for k in keys]


def _products(chip, length, which) -> float:
  """Returns Mcycles of bfloat16 products; the output has only three digits."""
  hidden = config.SIZES['base'][1]
  flops = FLOPS[which] * TOKENS * length * hidden
  speed = chips.get(chip).product_flops * kernel_schedules.SHARE
  return flops / speed / 1e6


def differences(known, found) -> list[str]:
  """Returns a line for each row that differs from the table."""
  table = {row[:4]: row[4:] for row in known}
  wrong = []
  for *key, forward, backward in found:
    old = table.get(tuple(key))
    if old is None or any(
      abs(a - b) > TOLERANCE * b
      for a, b in zip(old, (forward, backward), strict=True)
    ):
      wrong.append(f'{" ".join(map(str, key))}: {old}, now {forward, backward}')
  return wrong


def list_heads(table, lines) -> dict[int, list[tuple]]:
  """Returns {size of heads: rows}, relative to rows of heads of 64.

  A row is (chip, generator, type, tokens per row, forward, backward).
  """
  known, found = {row[:4]: row[4:] for row in table}, {}
  for k in {row[0] for row in kernel_schedules.HEADS} - {64}:
    found[k] = [
      (*row[:4], *(x / y for x, y in zip(row[4:], known[row[:4]], strict=True)))
      for row in read(lines, k)
      if row[:4] in known
    ]
  return found


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('files', nargs='+')
  parser.add_argument('--check', action='store_true')
  values = parser.parse_args()
  lines = []
  for path in values.files:
    with open(path) as file:
      lines += file
  found = read(lines)
  heads = list_heads(kernel_schedules.TIMES if values.check else found, lines)
  if not found and not any(heads.values()):
    sys.exit('error: no line is one of benchmarks/tpu/kernels.py for BASE.')
  if not values.check:
    print('\n'.join(f'  {row!r},' for row in found))
    for k, rows in sorted(heads.items()):
      for *_, length, forward, backward in rows:
        print(f'  ({k}, {length}, {forward:.2f}, {backward:.2f}),')
    return 0
  wrong = differences(kernel_schedules.TIMES, found)
  for k, rows in sorted(heads.items()):
    factors = {x[1]: x[2:] for x in kernel_schedules.HEADS if x[0] == k}
    table = [(*row[:4], *factors.get(row[3], (0, 0))) for row in rows]
    wrong += [f'heads of {k}, {x}' for x in differences(table, rows)]
  count = len(found) + sum(map(len, heads.values()))
  print('\n'.join(wrong or [f'{count} rows are as in the table']))
  return 1 if wrong else 0


if __name__ == '__main__':
  sys.exit(main())
