"""Counts the cycles of the attention kernels in the compiler's own schedule.

  python benchmarks/tpu/kernels.py [--topology=v5e:2x2] [--dtype=bfloat16]
    [--sizes=base,large] [--lengths=128,512] [--generators=none,rbg,threefry]
    [--head_sizes=32,64]

Compiles attention with its gradient, without a TPU, with 8,192 tokens per
device, and has the compiler dump the instructions of each kernel as they are
issued, one bundle per cycle. A bundle counts as often as the loops around it
iterate; each loop's exit test names its limit. Stalls are not included: on
memory, or on other units in longer bundles. Bundles under a condition count as
if they always ran.

For comparison, it prints the time of a kernel's matrix products, at half the
rate that the compiler expects of large ones, and of the bytes that it reads and
writes, at the memory bandwidth; and the schedule as a multiple of the larger
one. A float32 product is six bfloat16 ones. On v4 and v5p, two cores split the
work, and the schedule is that of one.
"""

import argparse
import glob
import itertools
import os
import re
import sys
import tempfile

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from bert_jax import config, errors
from bert_jax.hardware import topology as topology_lib
from bert_jax.ops import fused_attention
from bert_jax.preflight import compile_step

TOKENS = 8192
# (name in jax, words of a key); `none` is without dropout.
GENERATORS = {
  'none': (None, 0),
  'rbg': ('rbg', 4),
  'threefry': ('threefry2x32', 2),
}
PASSES = {'bfloat16': 1, 'float32': 6}  # of the matrix unit, for a product
KERNELS = 'attention_forward', 'attention_backward'
_BUNDLE = re.compile(r' *(?:0x[0-9a-f]+|0) +([A-Z]{2})? *:')
_EXIT = re.compile(
  r'%(\w+) = scmp\.ge\.s32\.totalorder [^;]*?, (\d+) /\* loop exit test'
)
_BRANCH = re.compile(r'sbr\.rel \(!%(\w+)\) target = \$region(\d+)')
_DELAY = 4  # bundles after a branch that run before it is taken


def cycles(text: str) -> int:
  """Adds up the bundles of a kernel, loops unrolled.

  Args:
    text: content of a file `*-final_bundles.txt` of the TPU compiler.

  Raises:
    ValueError: if the iterations of a loop are not known.
  """
  bundles = [line for line in text.splitlines() if _BUNDLE.match(line)]
  limits = {name: int(n) for name, n in _EXIT.findall(text)}
  ends = {}  # {region: (its last bundle, turns)}
  for i, line in enumerate(bundles):
    for condition, region in _BRANCH.findall(line):
      if condition in limits:
        ends[region] = i + _DELAY, limits[condition]
  turns = [1] * len(bundles)
  outer = True
  for i, line in enumerate(bundles):
    if _BUNDLE.match(line)[1] != 'LB':
      continue
    found = [r for r in re.findall(r'Start region (\d+)', line) if r in ends]
    if len(found) != 1:
      raise ValueError(f'no turns are known of the loop {line[:60]!r}')
    last, n = ends[found[0]]
    # The grid loop iterates twice more, to fill and drain the pipeline.
    n, outer = n - 2 if outer else n, False
    for j in range(i, min(last + 1, len(bundles))):
      turns[j] *= n
  return sum(turns)


def compile_attention(device, shape, dtype, generator, **masks):
  """Compiles attention and its gradient; returns the scheduled HLO.

  Args:
    device: to compile for.
    shape: B, S, H, K.
    dtype: type of queries, keys and values.
    generator: makes the dropout bits, one of `GENERATORS`.
    **masks: `causal` and whether rows are `packed`.
  """
  impl, words = GENERATORS[generator]
  causal, packed = masks.get('causal', False), masks.get('packed', False)

  def run(qkv, bias, mask, words, grad):
    def attend(qkv, bias):
      return fused_attention.attend(
        qkv,
        bias,
        mask,
        impl and jax.random.wrap_key_data(words, impl=impl),
        rate=0.1,
        mask_value=-10_000.0,
        causal=causal,
        sequence_ids=mask if packed else None,
        deterministic=impl is None,
      )

    mixed, gradient = jax.vjp(attend, qkv, bias)
    return mixed, gradient(grad)

  def array(shape, dtype=dtype):
    placed = SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=placed)

  arguments = (
    array((*shape[:2], 3, *shape[2:])),
    array((3, *shape[2:])),
    array(shape[:2], jnp.int32),
    array((words,), jnp.uint32),
    array(shape),
  )
  return jax.jit(run).lower(*arguments).compile().as_text()


def schedules(folder):
  """Returns {kernel: cycles} from a dump, and empties it."""
  found = {}
  for path in glob.glob(os.path.join(folder, '*')):
    for kernel in KERNELS:
      if re.search(rf'-{kernel}[.\d]*-\d+-final_bundles\.txt$', path):
        with open(path) as file:
          found[kernel] = cycles(file.read())
    os.remove(path)
  return found


def estimates(hlo, kernel, chip, dtype):
  """Returns the cycles of a kernel, by its products and by its bytes."""
  (line,) = (x for x in hlo.splitlines() if re.match(rf' *%{kernel}\S* = ', x))
  flops, moved = (
    int(re.search(rf'"{name}":"(\d+)"', line)[1])
    for name in ('flops', 'bytes_accessed')
  )
  seconds = moved / (chip.hbm_bandwidth / chip.devices)
  products = PASSES[dtype] * flops / (chip.product_flops / 2)
  return products, seconds * chip.cycles_per_second


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--topology', default='v5e:2x2')
  parser.add_argument('--dtype', default='bfloat16', choices=PASSES)
  parser.add_argument('--sizes', default='base,large')
  parser.add_argument('--lengths', default='128,512')
  parser.add_argument('--generators', default='rbg,threefry')
  parser.add_argument('--head_sizes', default='64', help='default: 64')
  args = parser.parse_args()
  topology = topology_lib.parse(args.topology)
  # Only the compiler is used; do not occupy accelerators of this machine.
  jax.config.update('jax_platforms', 'cpu')
  with tempfile.TemporaryDirectory() as folder:
    # Read once, when the compiler is loaded.
    os.environ['LIBTPU_INIT_ARGS'] = (
      f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
    )
    device = compile_step.describe_devices(topology)[0]
    print(
      f'{topology.chip.name}, {args.dtype}, {TOKENS} tokens for a device, '
      'Mcycles'
    )
    print(f'{"":35}{"schedule":>9}{"products":>9}{"bytes":>9}{"times":>7}')
    for size, length, generator, k in itertools.product(
      args.sizes.split(','),
      map(int, args.lengths.split(',')),
      args.generators.split(','),
      map(int, args.head_sizes.split(',')),
    ):
      _, hidden, _ = config.SIZES[size]
      shape = TOKENS // length, length, hidden // k, k
      hlo = compile_attention(device, shape, args.dtype, generator)
      for kernel, n in sorted(schedules(folder).items(), reverse=True):
        found = n, *estimates(hlo, kernel, topology.chip, args.dtype)
        label = f'{size} {length} {generator} {kernel.split("_")[1]}'
        label += f' heads of {k}' if k != 64 else ''
        cells = ''.join(f'{x / 1e6:9.3f}' for x in found)
        times = n / max(found[1:])
        print(f'{label:35}{cells}{times:7.2f}', flush=True)


if __name__ == '__main__':
  try:
    main()
  except errors.UserError as error:
    sys.exit(f'error: {error}')
