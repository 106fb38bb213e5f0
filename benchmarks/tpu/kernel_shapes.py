"""Compiles the attention kernels for many shapes and reports failures.

  python benchmarks/tpu/kernel_shapes.py [--topologies=v4:2x2x1,v5e:2x2,...]
    [--dtypes=bfloat16,float32] [--lengths=128,256,384,512]

No TPU is needed. Each shape that `fused_attention.unsupported` accepts is
compiled twice, with its gradient: with packed rows and hashed dropout, which
take the most memory; and with another mask, generator and number of rows, which
vary from shape to shape. The exit code is 1 if one does not compile.
"""

import argparse
import itertools
import sys

import jax
import kernels

from bert_jax import errors
from bert_jax.hardware import topology as topology_lib
from bert_jax.ops import fused_attention
from bert_jax.preflight import compile_step

TOPOLOGIES = 'v4:2x2x1', 'v5e:2x2', 'v5p:2x2x1', 'v6e:2x2', 'tpu7x:2x2x1'
# (heads, head size): those of BERT, and other head sizes.
HEADS = (4, 64), (8, 64), (12, 64), (16, 64), (24, 32), (6, 128), (64, 16)
MASKS = {'plain': {}, 'packed': {'packed': True}, 'causal': {'causal': True}}
ROWS = 1, 2, 7, 16, 64


def variants(n: int) -> list[tuple[int, str, str]]:
  """Returns the (rows, mask, generator) with which the n-th shape is tried."""
  generators, masks = list(kernels.GENERATORS), list(MASKS)
  # 3 and 5 are coprime: 45 consecutive shapes have every combination.
  other = ROWS[n % 5], masks[n % 3], generators[n // 3 % 3]
  return [(16, 'packed', 'threefry'), other]


def try_shape(device, shape, dtype, mask, generator) -> str:
  """Returns 'ok' or the compiler's message."""
  try:
    kernels.compile_attention(device, shape, dtype, generator, **MASKS[mask])
  except jax.errors.JaxRuntimeError as error:
    lines = [x for x in str(error).splitlines() if 'vmem' in x.lower()]
    return f'FAILS: {(lines or str(error).splitlines())[-1][:200]}'
  return 'ok'


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--topologies', default=','.join(TOPOLOGIES))
  parser.add_argument('--dtypes', default='bfloat16,float32')
  parser.add_argument('--lengths', default='128,256,384,512')
  args = parser.parse_args()
  # Only the compiler is used; do not occupy accelerators of this machine.
  jax.config.update('jax_platforms', 'cpu')
  shapes = itertools.product(
    args.dtypes.split(','), map(int, args.lengths.split(',')), HEADS
  )
  shapes = list(enumerate(shapes))
  counts = {'ok': 0, 'refused': 0, 'FAILS': 0}
  for name in args.topologies.split(','):
    device = compile_step.describe_devices(topology_lib.parse(name))[0]
    for n, (dtype, length, (heads, size)) in shapes:
      refused = fused_attention.unsupported(length, heads, size, dtype)
      for rows, mask, generator in variants(n):
        if refused:
          found = f'refused: {refused}'
        else:
          shape = rows, length, heads, size
          found = try_shape(device, shape, dtype, mask, generator)
        counts[found.split(':')[0]] += 1
        label = f'{name} {dtype} {length} {heads}x{size} {rows} rows'
        print(f'{label:43} {mask:6} {generator:8} {found}', flush=True)
  print(', '.join(f'{n} {what}' for what, n in counts.items()))
  if counts['FAILS']:
    sys.exit(1)


if __name__ == '__main__':
  try:
    main()
  except errors.UserError as error:
    sys.exit(f'error: {error}')
