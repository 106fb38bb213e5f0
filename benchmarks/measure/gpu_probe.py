"""Parts of gpu.py: bare products, steps compiled elsewhere, where time goes.

python benchmarks/measure/gpu_probe.py products
python benchmarks/measure/gpu_probe.py compile --topology=h100:1 --rows large:128:128
python benchmarks/measure/gpu_probe.py trace --size=large --batch=128
"""

import argparse
import collections
import glob
import re
import subprocess
import sys
import tempfile
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
TIMES, STEPS = 20, 5
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


def trace_step(args):
  """Prints the time of each kind of operation in a step."""
  import ours

  c = make_config(args, args.size, args.seq_length, args.batch)
  batches = step_rows.read(c, args.data, args.full)
  train, compiled, how = ours.trainer(
    c, step_rows.split(batches), args.compiled
  )
  kinds = sort_operations(compiled.as_text())
  train(3)
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
      begin = time.perf_counter()
      train(STEPS)
      traced = (time.perf_counter() - begin) / STEPS * 1e3
    begin = time.perf_counter()
    train(STEPS)
    whole = (time.perf_counter() - begin) / STEPS * 1e3
    (path,) = glob.glob(f'{folder}/**/*.xplane.pb', recursive=True)
    spent = add_up(jax.profiler.ProfileData.from_file(path), kinds)
  busy = sum(spent.values()) / STEPS
  print(f'{how}; a step takes {whole:.1f} ms, traced {traced:.1f}')
  for kind, ms in spent.most_common():
    print(f'{ms / STEPS:9.2f} ms  {kind}')
  print(f'{traced - busy:9.2f} ms  nothing runs')


# Kinds by what an instruction, or what it fuses, says; the first that fits counts.
KINDS = (
  ('attention', r'flash_|draw_kept'),
  ('products', r' dot\(|gemm|cublas|matmul|convolution\('),
  ('LayerNorm', r'op_name="[^"]*norm'),
  ('encoder: GELU, dropout, sums', r'op_name="[^"]*encoder'),
  ('embeddings and heads', r'op_name="[^"]*(embeddings|mlm|nsp|pooler)'),
)
OTHER = 'update of the parameters, other sums'
# Kernels of cuBLAS, which do not name their instruction in CUDA graphs.
LIBRARY = re.compile('gemm|nvjet|cutlass|xmma|cublas')


def sort_operations(text) -> dict[str, str]:
  """Returns {instruction: its kind} of a compiled program."""
  bodies, name = collections.defaultdict(list), ''
  for line in text.splitlines():
    if line.endswith('{') and '(' in line:
      name = line.split()[0].lstrip('%')
    bodies[name].append(line)
  found = {}
  for line in text.splitlines():
    if match := re.match(r'\s+(?:ROOT )?%?([\w.-]+) = ', line):
      called = re.search(r'calls=%?([\w.-]+)', line)
      whole = '\n'.join([line, *(bodies[called[1]] if called else ())])
      fits = (kind for kind, rule in KINDS if re.search(rule, whole))
      found[match[1]] = next(fits, OTHER)
  return found


def add_up(data, kinds) -> collections.Counter:
  """Returns {kind: ms} of what ran on the device."""
  # Kernels have names of C.
  kinds = {re.sub(r'[.-]', '_', name): kind for name, kind in kinds.items()}
  spent, gpu = collections.Counter(), any('GPU' in p.name for p in data.planes)
  for plane in data.planes:
    if gpu != ('GPU' in plane.name):
      continue
    for line in plane.lines:
      if gpu and 'Stream' not in line.name:
        continue
      for event in line.events:
        name = dict(event.stats).get('hlo_op', event.name if gpu else '')
        kind = kinds.get(re.sub(r'[.-]', '_', name))
        if kind is None and LIBRARY.search(event.name):
          kind = 'products'
        if kind or gpu:
          spent[kind or 'copies and others'] += event.duration_ns / 1e6
  return spent


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('part', choices=['products', 'compile', 'trace'])
  add = parser.add_argument
  add('--shrink', type=int, default=1, help='of products, by this factor')
  add('--topology', help='as in bert_jax.preflight')
  add('--rows', nargs='*', help='SIZE:LENGTH:BATCH')
  step.add_shape(parser)
  args = parser.parse_args()
  if args.part == 'products':
    time_products(args.shrink)
  else:
    {'compile': compile_rows, 'trace': trace_step}[args.part](args)


if __name__ == '__main__':
  main()
