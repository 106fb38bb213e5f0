"""Counts the cost of a compiled step from its scheduled HLO text."""

import collections
import dataclasses
import re
from typing import Any

from bert_jax.preflight import hlo_text

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# fmt: off
_COLLECTIVES = (
  'all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all',
  'collective-permute',
)
# fmt: on
# Custom calls with their own program, for which the compiler has no estimate;
# the others are annotations, or parts of ops for which it has one.
_KERNELS = ('tpu_custom_call', 'MosaicFusion')


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a device does in one execution, loops unrolled."""

  cycles: float = 0  # the compiler's estimate; it does not include what follows
  rng_bytes: float = 0  # of random bits that are generated
  collectives: dict = dataclasses.field(default_factory=dict)  # {kind: count}
  # {kind: bytes of the whole arrays, the larger of inputs and outputs}.
  collective_bytes: dict = dataclasses.field(default_factory=dict)
  # {devices of one of the groups, such as '0,4,8,12', or pairs of a
  # permutation, such as '0>1,1>0': bytes that the device sends, with the best
  # algorithms}, numbered as in the mesh.
  group_bytes: dict = dataclasses.field(default_factory=dict)
  # {name and result: count} of custom calls with their own program, FLOPs that
  # they declare, otherwise 0, and bytes, otherwise of inputs and outputs.
  kernels: dict = dataclasses.field(default_factory=dict)
  kernel_flops: dict = dataclasses.field(default_factory=dict)
  kernel_bytes: dict = dataclasses.field(default_factory=dict)
  moved_bytes: float = 0  # by gathers and scatters without cycles


@dataclasses.dataclass(frozen=True)
class Piece:
  """An op of a program's schedule."""

  cost: Cost
  starts: str  # name of the asynchronous collective that begins with it, or ''
  awaits: str  # name of the one whose end the device then waits for, or ''


def list_schedule(text: str) -> list[Piece]:
  """Returns a program's ops that cost something, in order; see `count_cost`."""
  computations, entry, devices = _parse(text)
  found = []
  for op in computations[entry]:
    totals = collections.Counter()
    _add_op(totals, op, computations, entry, devices=devices)
    starts = op.name if op.opcode.endswith('-start') else ''
    awaits = op.operands[0] if op.opcode.endswith('-done') else ''
    if op.opcode == 'fusion':  # one of several that a collective overlaps
      parts = [part.rest for part in _inside(op, computations)]
      chain = re.search(r'chain_id="(\d+)"', ' '.join(parts))
      for mark in parts if chain else ():
        starts = chain[1] if 'AsyncCollectiveStart' in mark else starts
        awaits = chain[1] if 'AsyncCollectiveDone' in mark else awaits
    if +totals or awaits:
      found.append(Piece(_make_cost(totals), starts, awaits))
  return found


def count_cost(text: str) -> Cost:
  """Adds up the cost of a program on a device.

  Args:
    text: HLO from `compiled.as_text()`; only TPU programs contain
      `"estimated_cycles"`.

  Raises:
    ValueError: if it is not an HLO module, or has a loop with an unknown number
      of iterations.
  """
  computations, entry, devices = _parse(text)
  totals = collections.Counter()
  _add(totals, computations, entry, devices=devices)
  return _make_cost(totals)


def _parse(text):
  """Returns (computations, the entry's name, devices)."""
  found = re.search(r'num_partitions=(\d+)', text)
  return *hlo_text.parse(text), range(int(found[1]) if found else 1)


def _make_cost(totals) -> Cost:
  found = dataclasses.asdict(Cost())
  for key, n in sorted(totals.items(), key=str):
    if isinstance(key, tuple):
      found[key[0]][key[1]] = n
    else:
      found[key] = n
  return Cost(**found)


def extrapolate(few: Any, more: Any, layers: tuple[int, int, int]) -> Any:
  """Extrapolates a cost or a memory linearly from layers[:2] to layers[2]."""
  x, y, z = layers

  def line(a, b):
    if isinstance(a, dict):
      return {k: line(a.get(k, 0), b.get(k, 0)) for k in sorted({*a, *b})}
    return max(a + (b - a) * (z - x) / (y - x), 0)

  pairs = zip(vars(few).values(), vars(more).values(), strict=True)
  return type(few)(*(line(a, b) for a, b in pairs))


def _add(totals, computations, name, **how):
  """Adds a computation, see `_add_op`."""
  for op in computations[name]:
    _add_op(totals, op, computations, name, **how)


def _add_op(
  totals,
  op,
  computations,
  name,
  *,
  devices,
  times=1,
  fused=False,
  aside=False,
):
  """Adds an op of the computation `name` that runs `times` times.

  Args:
    fused: whether one estimate of the compiler covers all of it.
    aside: whether another core of the chip runs it, whose cycles do not count.
  """
  if not fused:  # the parts of a fusion repeat its estimate
    found = [] if aside else [int(n) for n in _CYCLES.findall(op.rest)]
    totals['cycles'] += times * sum(found)
    if not found:
      _add_moves(totals, op, computations, times)
  kind = op.opcode.removesuffix('-start')
  if op.opcode.endswith('-done') or op.opcode.endswith('-update'):
    return  # counted at its start
  if kind in _COLLECTIVES:
    # A collective that overlaps several fusions occurs in each of them.
    if 'chain_id=' not in op.rest or any(
      'AsyncCollectiveStart' in other.rest for other in computations[name]
    ):
      _add_collective(totals, op, kind, name, times, devices)
  elif kind == 'rng-bit-generator':
    totals['rng_bytes'] += times * hlo_text.parse_largest(op.type)
  elif kind == 'custom-call':
    _add_custom_call(totals, op, times)
  loops = hlo_text.count_trips(op, computations) if kind == 'while' else 1
  for called in hlo_text.list_called(op):
    _add(
      totals,
      computations,
      called,
      times=times * loops,
      devices=devices,
      fused=fused or kind == 'fusion',
      aside=aside or 'async_execution_thread="sparsecore"' in op.rest,
    )


def _add_custom_call(totals, op, times):
  target = re.search(r'custom_call_target="([^"]*)"', op.rest)[1]
  if target not in _KERNELS:
    return
  said = dict(re.findall(r'"(flops|bytes_accessed)":"(\d+)"', op.rest))
  moved = said.get('bytes_accessed')
  if not moved:  # then inputs and outputs
    moved = sum(map(hlo_text.parse_size, (op.type, *op.inputs)))
  name = re.sub(r'\.\d+$', '', op.name)
  key = f'{name} {hlo_text.SHAPE.search(op.type)[0]}'
  totals['kernels', key] += times
  totals['kernel_flops', key] += times * int(said.get('flops', 0))
  totals['kernel_bytes', key] += times * int(moved)


def _add_moves(totals, op, computations, times):
  """Adds the gathers and scatters of an op without cycles."""
  inside = list(_inside(op, computations))
  totals['moved_bytes'] += times * sum(map(_moved, inside))
  scatters = any(part.opcode == 'scatter' for part in inside)
  if scatters and '"aliasing_operands":{"lists":[{' not in op.rest:
    # The table is made, not changed in place.
    totals['moved_bytes'] += times * hlo_text.parse_size(op.type)


def _inside(op, computations):
  """Yields an op, or the ops of a fusion."""
  if op.opcode != 'fusion':
    yield op
    return
  for called in hlo_text.list_called(op):
    for part in computations[called]:
      yield from _inside(part, computations)


def _moved(op) -> int:
  """Returns the bytes that a gather or scatter must read and write."""
  if op.opcode == 'gather':
    return 2 * hlo_text.parse_size(op.type)
  if op.opcode == 'scatter':  # operands, indices, updates
    updates = op.inputs[len(op.inputs) // 2 + 1 :]
    return 3 * sum(map(hlo_text.parse_size, updates))
  return 0


def _add_collective(totals, op, kind, name, times, devices):
  # The type of a start has inputs, too.
  started = op.opcode in ('all-gather-start', 'collective-permute-start')
  whole = max(
    hlo_text.parse_size(_get_second(op.type) if started else op.type),
    sum(map(hlo_text.parse_size, op.inputs)),
  )
  pairs = hlo_text.find_pairs(op.rest)
  group = hlo_text.find_group(op.rest) or tuple(devices)
  n = len(group)
  # On TPUs, a reduce-scatter is a fusion that keeps one part of an all-reduce.
  if kind == 'all-reduce' and 'all-reduce-scatter' in name:
    kind = 'reduce-scatter'
  rounds = {'all-reduce': 2 * (n - 1) / n, 'collective-permute': 1}
  totals['collectives', kind] += times
  totals['collective_bytes', kind] += times * whole
  sent = times * whole * rounds.get(kind, (n - 1) / n)
  totals['group_bytes', pairs or ','.join(map(str, group))] += sent


def _get_second(type_text) -> str:
  """Returns the second array of a tuple's type, '' if there is none."""
  found = list(hlo_text.SHAPE.finditer(type_text))
  return found[1][0] if len(found) > 1 else ''
