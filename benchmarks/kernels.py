"""Counts the cycles of the attention kernels in the compiler's own schedule.

  python benchmarks/kernels.py [--topology=v5e:2x2]

Compiles attention with its gradient for a TPU that is not there, with 8,192
tokens for a device, and has the compiler write the instructions of each kernel
as they are issued, one bundle in a cycle. A bundle counts as often as the loops
around it turn; each loop's exit test names its limit. What is missing from this
is waiting: for the memory, or for the other units in longer bundles. Bundles
that run under a condition count as if they always ran.

Beside it stands what a kernel would take by its matrix products, at half of the
rate that the compiler expects of large ones, and by the bytes that it reads and
writes, at the memory's bandwidth; and the schedule in parts of the larger one.
"""

import argparse
import glob
import os
import re
import sys
import tempfile

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from bert_jax import aot, config, errors, fused_attention
from bert_jax import topology as topology_lib

TOKENS = 8192
LENGTHS = 128, 512
RNGS = {'rbg': 4, 'threefry2x32': 2}  # words of a key
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
    text: of a file `*-final_bundles.txt` of the TPU compiler.

  Raises:
    ValueError: if there is a loop whose turns are not known.
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
    # The grid's loop turns twice more, to fill the pipeline and to drain it.
    n, outer = n - 2 if outer else n, False
    for j in range(i, min(last + 1, len(bundles))):
      turns[j] *= n
  return sum(turns)


def compile_attention(device, heads, head_size, length, rng):
  """Compiles attention and its gradient; returns the scheduled HLO."""
  shape = TOKENS // length, length, heads, head_size  # [B, S, H, K]

  def run(qkv, bias, mask, words, grad):
    key = jax.random.wrap_key_data(words, impl=rng)

    def attend(qkv, bias):
      return fused_attention.attend(
        qkv,
        bias,
        mask,
        key,
        rate=0.1,
        mask_value=-10_000.0,
        deterministic=False,
      )

    mixed, gradient = jax.vjp(attend, qkv, bias)
    return mixed, gradient(grad)

  def array(shape, dtype=jnp.bfloat16):
    placed = SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=placed)

  arguments = (
    array((*shape[:2], 3, *shape[2:])),
    array((3, *shape[2:])),
    array(shape[:2], jnp.int32),
    array((RNGS[rng],), jnp.uint32),
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


def estimates(hlo, kernel, chip):
  """Returns the cycles of a kernel by its products and by its bytes."""
  (line,) = (x for x in hlo.splitlines() if re.match(rf' *%{kernel}\S* = ', x))
  flops, moved = (
    int(re.search(rf'"{name}":"(\d+)"', line)[1])
    for name in ('flops', 'bytes_accessed')
  )
  seconds = moved / (chip.hbm_bandwidth / chip.devices)
  return flops / (chip.product_flops / 2), seconds * chip.cycles_per_second


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--topology', default='v5e:2x2')
  name = parser.parse_args().topology
  topology = topology_lib.parse(name)
  # The compiler alone is used; accelerators that are here stay free.
  jax.config.update('jax_platforms', 'cpu')
  with tempfile.TemporaryDirectory() as folder:
    # Read once, when the compiler is loaded.
    os.environ['LIBTPU_INIT_ARGS'] = (
      f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
    )
    device = aot.describe_devices(topology)[0]
    print(f'{topology.chip.name}, {TOKENS} tokens for a device, Mcycles')
    print(f'{"":35}{"schedule":>9}{"products":>9}{"bytes":>9}{"times":>7}')
    for size in ('base', 'large'):
      _, hidden, heads = config.SIZES[size]
      for length, rng in ((s, rng) for s in LENGTHS for rng in RNGS):
        hlo = compile_attention(device, heads, hidden // heads, length, rng)
        for kernel, n in sorted(schedules(folder).items(), reverse=True):
          found = n, *estimates(hlo, kernel, topology.chip)
          label = f'{size} {length} {rng[:8]} {kernel.split("_")[1]}'
          cells = ''.join(f'{x / 1e6:9.3f}' for x in found)
          times = n / max(found[1:])
          print(f'{label:35}{cells}{times:7.2f}', flush=True)


if __name__ == '__main__':
  try:
    main()
  except errors.UserError as error:
    sys.exit(f'error: {error}')
