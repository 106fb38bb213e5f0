"""Tells how much longer attention kernels take than their matrix products.

Most of a kernel's products reach half the speed of a large product at best, since
heads are narrower than the matrix unit. The compiler's schedule of the kernel is
longer because of dropout's bits, softmax and other work of the vector unit. `TIMES`
has that schedule as a multiple of the products' time at half the speed. The table,
and `HEADS`, which has other sizes of heads, are of this kernel, by what
`a71d0fb:benchmarks/tpu/kernels.py` and `kernel_schedules.py` do.
"""

import math
import re

from ml_collections import config_dict

# Assumed speed of a kernel's products, relative to a large product.
SHARE = 0.5
# (chip, generator of dropout's bits, type, forward and backward for 128 tokens
# per row, then for 512), for BASE, whose heads have size 64. A float32 product
# takes six passes of the matrix unit.
# fmt: off
TIMES = (
  ('v4', 'none', 'bf16', 2.19, 1.52, 1.57, 1.03),
  ('v4', 'none', 'f32', 6.68, 6.43, 5.46, 5.52),
  ('v4', 'rbg', 'bf16', 3.06, 1.98, 2.09, 1.28),
  ('v4', 'rbg', 'f32', 7.43, 7.02, 6.0, 5.64),
  ('v4', 'threefry', 'bf16', 5.96, 3.09, 5.18, 2.55),
  ('v4', 'threefry', 'f32', 10.45, 8.01, 8.88, 6.3),
  ('v5e', 'none', 'bf16', 1.7, 1.09, 1.06, 0.84),
  ('v5e', 'none', 'f32', 4.75, 5.0, 3.96, 4.68),
  ('v5e', 'rbg', 'bf16', 1.95, 1.24, 1.19, 0.88),
  ('v5e', 'rbg', 'f32', 4.88, 5.06, 4.2, 4.8),
  ('v5e', 'threefry', 'bf16', 3.21, 1.7, 2.7, 1.47),
  ('v5e', 'threefry', 'f32', 5.68, 5.2, 5.1, 4.8),
  ('v5p', 'none', 'bf16', 1.76, 1.13, 1.08, 0.86),
  ('v5p', 'none', 'f32', 4.59, 5.02, 4.02, 4.8),
  ('v5p', 'rbg', 'bf16', 2.02, 1.26, 1.24, 0.9),
  ('v5p', 'rbg', 'f32', 4.66, 5.09, 4.32, 4.92),
  ('v5p', 'threefry', 'bf16', 3.34, 1.78, 2.77, 1.49),
  ('v5p', 'threefry', 'f32', 5.5, 5.24, 5.1, 4.98),
  ('v6e', 'none', 'bf16', 4.41, 2.82, 2.24, 1.61),
  ('v6e', 'none', 'f32', 15.07, 14.51, 8.28, 8.64),
  ('v6e', 'rbg', 'bf16', 5.1, 3.23, 2.56, 1.86),
  ('v6e', 'rbg', 'f32', 15.3, 14.69, 8.52, 8.76),
  ('v6e', 'threefry', 'bf16', 8.54, 4.68, 7.2, 3.79),
  ('v6e', 'threefry', 'f32', 15.87, 14.88, 12.0, 9.78),
  ('tpu7x', 'none', 'bf16', 4.65, 3.14, 2.44, 1.78),
  ('tpu7x', 'none', 'f32', 14.74, 13.0, 8.64, 8.82),
  ('tpu7x', 'rbg', 'bf16', 5.57, 3.64, 2.82, 2.09),
  ('tpu7x', 'rbg', 'f32', 15.99, 13.26, 8.64, 9.3),
  ('tpu7x', 'threefry', 'bf16', 9.57, 5.24, 8.17, 4.27),
  ('tpu7x', 'threefry', 'f32', 18.08, 13.76, 13.92, 9.96),
)
# fmt: on
# (size of a head, as above): times with 768 / K heads of that size, relative to
# 12 heads of 64, in bfloat16 with rbg on v5e. A product of a head uses a
# multiple of 128 lanes, whatever its size.
HEADS = (
  (16, 2.23, 3.32, 3.13, 3.64),
  (32, 1.3, 1.69, 1.68, 1.93),
  (64, 1.0, 1.0, 1.0, 1.0),
  (128, 0.73, 0.72, 0.75, 0.63),
  (256, 0.65, 0.59, 0.52, 0.53),
)
_LENGTHS = 128, 512
_KERNEL = re.compile(
  r'attention_(forward|backward) (\w+)\[(?:\d+,)*(\d+),\d+\]'
)


def describe_attention(config: config_dict.ConfigDict) -> tuple[str, int]:
  """Returns the generator of dropout's bits ('none', 'rbg', ...), and K."""
  m = config.model
  generator = config.rng if m.attention_dropout else 'none'
  return generator, m.hidden_size // m.num_heads


def look_up(chip: str, generator: str, kernel: str, head_size: int) -> float:
  """Returns the time of a kernel's schedule relative to its products.

  Args:
    chip: `chips.Chip.name`.
    generator: of dropout's bits, see `describe_attention`.
    kernel: a key of `hlo_cost.Cost.kernels`, such as
      'attention_forward bf16[16,512,1024]'.
    head_size: K.

  Returns:
    A multiple of the products' time at `SHARE` of a large product's speed; for
    a case not in the table, the largest of the closest ones. 1 for kernels
    other than attention's.
  """
  found = _KERNEL.match(kernel)
  if not found:
    return 1.0
  which, dtype, length = found[1], found[2], int(found[3])
  rows = TIMES
  for column, value in ((1, generator), (2, dtype), (0, chip)):
    rows = [row for row in rows if row[column] == value] or rows
  near = min(
    (row[0] for row in HEADS), key=lambda k: abs(math.log(k / head_size))
  )
  times, heads = (
    max(x for row in table for x in _pick(row[-4:], which, length))
    for table in (rows, [row for row in HEADS if row[0] == near])
  )
  # Smaller heads than in the table cost as much each.
  return times * heads * max(near / head_size, 1)


def _pick(times, which, length):
  """Returns a row's times for a length; if it has none, for all lengths."""
  times = times[0 if which == 'forward' else 1 :: 2]
  found = [x for n, x in zip(_LENGTHS, times, strict=True) if n == length]
  return found or times
