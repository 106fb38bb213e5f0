"""How much longer the attention kernels take than their matrix products.

At best, a kernel's products reach half the speed of a large product. The
compiler's schedule of the kernel is longer because of dropout's bits, softmax
and other work of the vector unit. `TIMES` has that schedule as a multiple of
the products' time. The table, and `HEADS`, which has other sizes of heads, were
printed by `a71d0fb:benchmarks/tpu/kernels.py` and `kernel_schedules.py`.
"""

import math
import re

from ml_collections import config_dict

# Assumed speed of a kernel's products, relative to a large product.
SHARE = 0.5
# (chip, generator of dropout's bits, type, tokens per row, forward, backward),
# for BASE, whose heads are of 64. A float32 product takes six passes of the
# matrix unit.
# fmt: off
TIMES = (
  ('v4', 'none', 'bf16', 128, 2.19, 1.52),
  ('v4', 'none', 'bf16', 512, 1.55, 1.29),
  ('v4', 'none', 'f32', 128, 6.68, 6.43),
  ('v4', 'none', 'f32', 512, 5.53, 5.59),
  ('v4', 'rbg', 'bf16', 128, 3.06, 1.98),
  ('v4', 'rbg', 'bf16', 512, 2.04, 1.64),
  ('v4', 'rbg', 'f32', 128, 7.43, 7.02),
  ('v4', 'rbg', 'f32', 512, 6.11, 5.97),
  ('v4', 'threefry', 'bf16', 128, 5.96, 3.09),
  ('v4', 'threefry', 'bf16', 512, 5.24, 2.79),
  ('v4', 'threefry', 'f32', 128, 10.45, 8.01),
  ('v4', 'threefry', 'f32', 512, 8.96, 6.73),
  ('v5e', 'none', 'bf16', 128, 1.7, 1.09),
  ('v5e', 'none', 'bf16', 512, 1.07, 1.01),
  ('v5e', 'none', 'f32', 128, 4.75, 5.0),
  ('v5e', 'none', 'f32', 512, 4.08, 4.56),
  ('v5e', 'rbg', 'bf16', 128, 1.95, 1.24),
  ('v5e', 'rbg', 'bf16', 512, 1.19, 1.11),
  ('v5e', 'rbg', 'f32', 128, 4.88, 5.06),
  ('v5e', 'rbg', 'f32', 512, 4.21, 4.73),
  ('v5e', 'threefry', 'bf16', 128, 3.21, 1.7),
  ('v5e', 'threefry', 'bf16', 512, 2.73, 1.68),
  ('v5e', 'threefry', 'f32', 128, 5.68, 5.2),
  ('v5e', 'threefry', 'f32', 512, 5.27, 4.91),
  ('v5p', 'none', 'bf16', 128, 1.76, 1.13),
  ('v5p', 'none', 'bf16', 512, 1.1, 1.03),
  ('v5p', 'none', 'f32', 128, 4.59, 5.02),
  ('v5p', 'none', 'f32', 512, 4.14, 4.68),
  ('v5p', 'rbg', 'bf16', 128, 2.02, 1.26),
  ('v5p', 'rbg', 'bf16', 512, 1.22, 1.13),
  ('v5p', 'rbg', 'f32', 128, 4.66, 5.09),
  ('v5p', 'rbg', 'f32', 512, 4.23, 4.83),
  ('v5p', 'threefry', 'bf16', 128, 3.34, 1.78),
  ('v5p', 'threefry', 'bf16', 512, 2.79, 1.74),
  ('v5p', 'threefry', 'f32', 128, 5.5, 5.24),
  ('v5p', 'threefry', 'f32', 512, 5.29, 5.05),
  ('v6e', 'none', 'bf16', 128, 4.41, 2.82),
  ('v6e', 'none', 'bf16', 512, 2.34, 1.91),
  ('v6e', 'none', 'f32', 128, 15.07, 14.51),
  ('v6e', 'none', 'f32', 512, 8.38, 8.63),
  ('v6e', 'rbg', 'bf16', 128, 5.1, 3.23),
  ('v6e', 'rbg', 'bf16', 512, 2.77, 2.29),
  ('v6e', 'rbg', 'f32', 128, 15.3, 14.69),
  ('v6e', 'rbg', 'f32', 512, 8.57, 8.8),
  ('v6e', 'threefry', 'bf16', 128, 8.54, 4.68),
  ('v6e', 'threefry', 'bf16', 512, 7.42, 4.17),
  ('v6e', 'threefry', 'f32', 128, 15.87, 14.88),
  ('v6e', 'threefry', 'f32', 512, 12.26, 10.29),
  ('tpu7x', 'none', 'bf16', 128, 4.65, 3.14),
  ('tpu7x', 'none', 'bf16', 512, 2.64, 2.09),
  ('tpu7x', 'none', 'f32', 128, 14.74, 13.0),
  ('tpu7x', 'none', 'f32', 512, 8.53, 9.03),
  ('tpu7x', 'rbg', 'bf16', 128, 5.57, 3.64),
  ('tpu7x', 'rbg', 'bf16', 512, 3.13, 2.42),
  ('tpu7x', 'rbg', 'f32', 128, 15.99, 13.26),
  ('tpu7x', 'rbg', 'f32', 512, 8.78, 9.11),
  ('tpu7x', 'threefry', 'bf16', 128, 9.57, 5.24),
  ('tpu7x', 'threefry', 'bf16', 512, 8.42, 4.57),
  ('tpu7x', 'threefry', 'f32', 128, 18.08, 13.76),
  ('tpu7x', 'threefry', 'f32', 512, 13.81, 10.22),
)
# fmt: on
# (size of a head, tokens per row, forward, backward): times with 768 / K heads
# of that size over those with 12 of 64, in bfloat16 with rbg on v5e. A product
# of a head uses a multiple of 128 lanes, whatever its size.
HEADS = (
  (16, 128, 2.23, 3.32),
  (16, 512, 3.02, 3.86),
  (32, 128, 1.3, 1.69),
  (32, 512, 1.59, 1.85),
  (64, 128, 1.0, 1.0),
  (64, 512, 1.0, 1.0),
  (128, 128, 0.73, 0.72),
  (128, 512, 0.77, 0.59),
  (256, 128, 0.65, 0.59),
  (256, 512, 0.53, 0.45),
)
_KERNEL = re.compile(
  r'attention_(forward|backward) (\w+)\[(?:\d+,)*(\d+),\d+\]'
)


def get_generator(config: config_dict.ConfigDict) -> str:
  """Returns the generator of attention dropout's bits: 'none', 'rbg', ..."""
  return config.rng if config.model.attention_dropout else 'none'


def look_up(chip: str, generator: str, kernel: str, head_size: int) -> float:
  """Returns the time of a kernel's schedule relative to its products.

  Args:
    chip: `chips.Chip.name`.
    generator: generator of dropout's bits, see `get_generator`.
    kernel: a key of `hlo_cost.Cost.kernels`, such as
      'attention_forward bf16[16,512,1024]'.
    head_size: K.

  Returns:
    A multiple of the products' time at `SHARE` of a large product's speed; for
    a case not in the table, the largest of the closest ones. 1 for kernels
    other than those of attention.
  """
  found = _KERNEL.match(kernel)
  if not found:
    return 1.0
  which, dtype, length = found[1], found[2], int(found[3])
  rows = TIMES
  for column, value in ((1, generator), (2, dtype), (0, chip), (3, length)):
    rows = [row for row in rows if row[column] == value] or rows
  column = 0 if which == 'forward' else 1
  times = max(row[4:][column] for row in rows)
  near = min(
    (row[0] for row in HEADS), key=lambda k: abs(math.log(k / head_size))
  )
  rows = [row for row in HEADS if row[0] == near]
  rows = [row for row in rows if row[1] == length] or rows
  # Smaller heads than those of the table cost as much each.
  return times * max(row[2:][column] for row in rows) * max(near / head_size, 1)
