"""Parts of gpu.py: bare products, and steps that are compiled elsewhere.

python benchmarks/measure/gpu_probe.py products
python benchmarks/measure/gpu_probe.py compile --topology=h100:1 --rows large:128:128
"""

import argparse
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import step
import step_rows
import step_turns

TOKENS = 16_384  # of a step of LARGE
# Rows, contracted, columns: queries, keys and values; their output; the MLP; its
# output; the decoder of 20 words of 128.
SHAPES = (
  (TOKENS, 1024, 3072),
  (TOKENS, 1024, 1024),
  (TOKENS, 1024, 4096),
  (TOKENS, 4096, 1024),
  (2_560, 1024, 30_720),
)
TIMES = 20
CLOCK = 'name,clocks.sm,clocks.max.sm,power.draw,temperature.gpu'


sys.path.insert(0, step_turns.PEERS)


def time_products(shrink):
  """Prints TFLOP/s of bare products in bfloat16, and the GPU's clock."""
  from bert_jax.hardware import chips

  chip = chips.find(jax.devices()[0].device_kind)
  for shape in ((8192,) * 3, *SHAPES):
    n, k, m = (size // shrink for size in shape)
    a, b = jnp.ones((n, k), 'bfloat16'), jnp.ones((k, m), 'bfloat16')
    product = jax.jit(jnp.dot).lower(a, b).compile()
    product(a, b).block_until_ready()
    begin = time.perf_counter()
    for _ in range(TIMES):
      c = product(a, b)
    c.block_until_ready()
    seconds = (time.perf_counter() - begin) / TIMES
    rate = 2 * n * k * m / seconds
    share = f', {rate / chip.flops:.1%} of the peak' if chip else ''
    print(
      f'[{n}, {k}] x [{k}, {m}]: {seconds * 1e6:,.0f} us, '
      f'{rate / 1e12:.1f} TFLOP/s{share}; {ask_clock()}'
    )


def ask_clock() -> str:
  command = ['nvidia-smi', f'--query-gpu={CLOCK}', '--format=csv,noheader']
  try:
    return subprocess.check_output(command, text=True).strip()
  except OSError:
    return 'no nvidia-smi'


def compile_rows(args):
  """Compiles our steps for an absent GPU, each into a file of --compiled."""
  import ours
  from jax.experimental import serialize_executable

  from bert_jax.hardware import accelerators
  from bert_jax.preflight import compile_step

  args.gpu, args.layers = True, None
  devices = compile_step.describe_devices(accelerators.parse(args.topology))
  for row in args.rows:
    size, length, rows = row.split(':')
    c = make_config(args, size, int(length), int(rows))
    begin, program = time.monotonic(), ours.list_step(c, devices)
    payload, *_ = serialize_executable.serialize(program.lower().compile())
    path = ours.find_path(args.compiled, c)
    path.write_bytes(payload)
    print(
      f'{path.name}: {len(payload) / 2**20:.1f} MiB, compiled in '
      f'{time.monotonic() - begin:.0f} s'
    )


def make_config(args, size, length, rows):
  from bert_jax.config import recipes

  layers = args.layers or recipes.pretraining(size).model.num_layers
  c = step.get_config(size, layers, length, rows, args)
  step_rows.use_data(c, args.data)
  return c


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('part', choices=['products', 'compile'])
  add = parser.add_argument
  add('--shrink', type=int, default=1, help='of products, by this factor')
  add('--topology', help='as in bert_jax.preflight')
  add('--rows', nargs='*', help='SIZE:LENGTH:BATCH')
  step.add_shape(parser)
  args = parser.parse_args()
  if args.part == 'products':
    time_products(args.shrink)
  else:
    compile_rows(args)


if __name__ == '__main__':
  main()
