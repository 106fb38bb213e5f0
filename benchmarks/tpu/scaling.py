"""Models weak scaling of pre-training from 4 to 256 TPU v5e chips.

  python benchmarks/tpu/scaling.py --programs=FOLDER [--topologies=v5e:2x2,...]

Each chip has 8,192 tokens, whatever their number: BASE at length 128, in
bfloat16. Steps with 2 and 4 layers are compiled without TPUs and kept in
FOLDER. Efficiency is the time of a step on the first slice divided by that on
another: with collectives fully overlapped with computation (upper bound), and
not overlapped at all (lower bound). The goal is 95 %. Then possible causes of
a loss are printed: parts that grow, replicated parameters, and collectives,
marking those that the scheduled program waits for: to these the lower bound
applies. Not a measurement. A slice takes about four minutes on two cores if
FOLDER is empty.
"""

import argparse
import sys

import aot_compile
import aot_programs
import jax

from bert_jax import errors, param_names, tasks
from bert_jax.hardware import topology as topology_lib
from bert_jax.parallel import partition
from bert_jax.preflight import estimate, hlo_text

TOPOLOGIES = 'v5e:2x2,v5e:4x4,v5e:8x8,v5e:16x16'
LENGTH, ROWS = 128, 64  # of a chip
LARGEST = 8  # that are listed
KINDS = (
  *('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all'),
  'collective-permute',
)


def settings_of(topology):
  rows = ROWS * topology.chips
  return aot_programs.settings_of(topology.name, 'base', LENGTH, rows)


def row(first: estimate.Step, step: estimate.Step, chips: int) -> str:
  """Returns a line of the table.

  Args:
    first: step on the slice that others are compared with.
    step: step on this slice.
    chips: number of chips of this slice.
  """
  return (
    f'{chips:6}{step.hidden * 1e3:10.2f}{step.seconds * 1e3:10.2f}'
    f'{first.hidden / step.hidden:10.1%}{first.seconds / step.seconds:10.1%}'
  )


def kept_whole(c, topology) -> dict[str, int]:
  """Returns {parameter: bytes} of replicated parameters, in float32."""
  params = jax.eval_shape(
    tasks.get(c).make_objective(c).init, jax.random.key(0)
  )
  mesh = jax.sharding.AbstractMesh(
    (topology.devices, 1),
    ('data', 'model'),
    axis_types=(jax.sharding.AxisType.Auto,) * 2,
  )
  return {
    name: x.size * x.dtype.itemsize
    for name, x in param_names.flatten(params).items()
    if 'data' not in partition.stored_spec(mesh, name, x.shape)
  }


def collectives(text: str) -> list[tuple[int, bool, str]]:
  """Returns (bytes, whether the device waits, what) of each, largest first.

  An asynchronous one is an op that starts it, or runs beside the products of a
  fusion. Bytes are those of its input or output, whichever is larger.
  """
  computations, _ = hlo_text.parse(text)
  found = []
  for name, ops in computations.items():
    types = {op.name: op.type for op in ops}
    starts = any('AsyncCollectiveStart' in op.rest for op in ops)
    for op in ops:
      kind = op.opcode.removesuffix('-start')
      beside = 'chain_id=' in op.rest
      if kind not in KINDS or beside and not starts:
        continue
      if 'all-reduce-scatter' in name:  # keeps one part of the sum
        kind = 'reduce-scatter'
      moved = max(
        map(
          hlo_text.parse_size, (op.type, ' '.join(map(types.get, op.operands)))
        )
      )
      waits = not (beside or op.opcode.endswith('-start'))
      found.append((moved, waits, f'{kind} {op.type}'))
  return sorted(found, reverse=True)


def explain(topologies, costs, steps):
  """Prints the parts of the first and the last slice, side by side."""
  print(f'\n{"":40}' + ''.join(f'{t.chips:10} chips' for t in topologies))

  def line(what, values):
    print(f'{what:40}' + ''.join(f'{x:16.4g}' for x in values))

  for part in steps[0].parts:
    line(f'{part}, ms', (s.parts[part] * 1e3 for s in steps))
  line('sent, MB', (c.sent_bytes / 1e6 for c in costs))
  for kind in sorted({kind for c in costs for kind in c.collectives}):
    line(f'{kind}, number', (c.collectives.get(kind, 0) for c in costs))
    sizes = (c.collective_bytes.get(kind, 0) / 1e6 for c in costs)
    line(f'{kind}, MB', sizes)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    '--programs', required=True, help='folder of compiled programs'
  )
  parser.add_argument('--topologies', default=TOPOLOGIES)
  values = parser.parse_args()
  # Only the compiler is used; do not occupy accelerators of this machine.
  jax.config.update('jax_platforms', 'cpu')
  topologies = [topology_lib.parse(t) for t in values.topologies.split(',')]
  programs = aot_programs.Programs(values.programs, None)
  costs = [programs.line(settings_of(t))[1] for t in topologies]
  steps = [
    estimate.estimate_tpu_step(cost, t)
    for cost, t in zip(costs, topologies, strict=True)
  ]
  print(' chips        ms per step         efficiency')
  print(f'{"":6}{"hidden":>10}{"exposed":>10}{"hidden":>10}{"exposed":>10}')
  for t, step in zip(topologies, steps, strict=True):
    print(row(steps[0], step, t.chips))
  explain(
    [topologies[i] for i in (0, -1)], *((x[0], x[-1]) for x in (costs, steps))
  )
  last = topologies[-1]
  whole = kept_whole(aot_compile.get_config(settings_of(last)), last)
  print(f'\nkept whole on {last.chips} chips: {sum(whole.values()):,} bytes')
  for name, size in sorted(whole.items(), key=lambda x: -x[1])[:LARGEST]:
    print(f'{size:12,}  {name}')
  layers = aot_programs.FEW[0]
  _, text = programs.get_text({**settings_of(last), 'layers': layers})
  found = collectives(text)
  total, waited = (sum(x[0] for x in found if x[1] or y) for y in (True, False))
  print(
    f'\nwith {layers} layers the device waits for {waited:,} of {total:,} '
    'bytes:'
  )
  for size, _, what in [x for x in found if x[1]][:LARGEST]:
    print(f'{size:12,}  {what[:100]}')


if __name__ == '__main__':
  try:
    main()
  except errors.UserError as error:
    sys.exit(f'error: {error}')
