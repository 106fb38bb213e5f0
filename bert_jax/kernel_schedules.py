"""How much longer the attention kernels take than their matrix products.

A kernel's products at half the speed of a large one is what could be hoped
for. The compiler's own schedule of it is longer: dropout's bits, the softmax
and what else the vector unit does. `TIMES` holds the schedule in parts of
those products. It is printed, and checked, by

  python benchmarks/kernels.py --topology=v5e:2x2 | tee v5e.txt
  python benchmarks/kernel_schedules.py v5e.txt
"""

import re

# Of a large product's speed, what a kernel's products are taken to reach.
SHARE = 0.5
# (chip, generator of dropout's bits, type, tokens of a row, forward, backward),
# the larger one of BASE and LARGE.
# fmt: off
TIMES = (
  ('v4', 'rbg', 'bf16', 128, 3.28, 2.07),
  ('v4', 'rbg', 'bf16', 512, 2.12, 1.67),
  ('v4', 'threefry', 'bf16', 128, 6.11, 3.24),
  ('v4', 'threefry', 'bf16', 512, 5.28, 2.95),
  ('v5e', 'rbg', 'bf16', 128, 2.2, 1.47),
  ('v5e', 'rbg', 'bf16', 512, 1.36, 1.16),
  ('v5e', 'threefry', 'bf16', 128, 3.48, 1.88),
  ('v5e', 'threefry', 'bf16', 512, 2.86, 1.74),
  ('v5p', 'rbg', 'bf16', 128, 2.31, 1.51),
  ('v5p', 'rbg', 'bf16', 512, 1.33, 1.18),
  ('v5p', 'threefry', 'bf16', 128, 3.63, 1.92),
  ('v5p', 'threefry', 'bf16', 512, 2.9, 1.78),
  ('v6e', 'rbg', 'bf16', 128, 6.19, 3.69),
  ('v6e', 'rbg', 'bf16', 512, 3.32, 2.61),
  ('v6e', 'threefry', 'bf16', 128, 9.51, 5.02),
  ('v6e', 'threefry', 'bf16', 512, 8.03, 4.63),
  ('tpu7x', 'rbg', 'bf16', 128, 6.75, 4.25),
  ('tpu7x', 'rbg', 'bf16', 512, 3.7, 3.15),
  ('tpu7x', 'threefry', 'bf16', 128, 10.81, 5.71),
  ('tpu7x', 'threefry', 'bf16', 512, 9.13, 5.23),
)
# fmt: on
# Products of the matrix unit for one of float32.
_FLOAT32_PASSES = 6
_KERNEL = re.compile(
  r'attention_(forward|backward) (\w+)\[(?:\d+,)*(\d+),\d+\]'
)


def generator(config) -> str:
  """Returns what makes the bits of attention's dropout: 'none', 'rbg', ..."""
  return config.rng if config.model.attention_dropout else 'none'


def times(chip: str, generator: str, kernel: str) -> float:
  """Returns the schedule of a kernel in parts of its products at `SHARE`.

  Args:
    chip: `chips.Chip.name`.
    generator: of `generator`.
    kernel: a key of `hlo.Cost.kernels`, such as
      'attention_forward bf16[16,512,1024]'.

  Returns:
    1 for kernels other than those of attention. Where the table lacks the very
    case, the largest of those that have most in common with it; without
    dropout, that of the chip's own generator; of float32, six times that of
    bfloat16.
  """
  found = _KERNEL.match(kernel)
  if not found:
    return 1.0
  which, dtype, length = found[1], found[2], int(found[3])
  if generator not in {row[1] for row in TIMES}:
    generator = 'rbg'
  rows = TIMES
  for column, value in ((1, generator), (2, dtype), (0, chip), (3, length)):
    rows = [row for row in rows if row[column] == value] or rows
  most = max(row[4 if which == 'forward' else 5] for row in rows)
  if dtype == 'f32' and rows[0][2] != 'f32':
    most *= _FLOAT32_PASSES
  return most
