"""Reads a TPU program: cycles, kernels, collectives, and what runs beside them.

  python -m bert_jax.preflight --config=configs/large.py --topology=v5e:4x4 \\
    --phase=0 --hlo=step.hlo
  python benchmarks/tpu/hlo.py step.hlo

Prints what a device does in one execution, loops unrolled, by the compiler's
estimated cycles, which leave out kernels and collectives. An asynchronous
collective runs beside the ops between its start and its end: their cycles say
how much of it may be covered.
"""

import argparse
import collections
import dataclasses
import math
import pathlib
import re
from typing import NamedTuple

_SHAPE = re.compile(r'\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\]')
_NAME = re.compile(r'%?([\w.-]+)')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CHAIN = re.compile(r'chain_id="(\d+)"')
# fmt: off
_COLLECTIVES = (
  'all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all',
  'collective-permute',
)
# fmt: on
# Custom calls with their own program, for which the compiler has no estimate;
# the others are annotations, or parts of ops for which it has one.
_KERNELS = ('tpu_custom_call', 'MosaicFusion')


class Op(NamedTuple):
  """An instruction: `%name = type opcode(operands), rest`."""

  name: str
  type: str
  opcode: str
  operands: tuple[str, ...]
  rest: str
  inputs: tuple[str, ...] = ()  # types of the operands


@dataclasses.dataclass(frozen=True)
class Program:
  """What a device does in one execution; collectives by kind."""

  cycles: int
  kernels: dict[str, int]  # {name and result: count}
  collectives: dict[str, int]
  bytes: dict[str, int]  # of whole arrays, the larger of inputs and outputs
  ahead: dict[str, int]  # how many are asynchronous
  beside: int  # cycles in which one of these is under way


def read(text: str) -> Program:
  """Adds up a scheduled program, from `compiled.as_text()`."""
  computations, entry = parse(text)
  totals = collections.Counter()
  _add(totals, computations, entry)

  def pick(name):
    return {key: totals[x, key] for x, key in sorted(totals) if x == name}

  ahead, beside = _find_overlap(computations, entry)
  return Program(
    totals['cycles', ''],
    *map(pick, ('kernels', 'collectives', 'bytes')),
    *(dict(sorted(ahead.items())), beside),
  )


def parse(text: str) -> tuple[dict[str, list[Op]], str]:
  """Returns ({computation: its ops}, the entry's name)."""
  computations, entry, ops = {}, None, None
  for line in text.splitlines():
    if line[:1] in ('%', 'E') and line.rstrip().endswith('{'):
      name = _NAME.match(line.removeprefix('ENTRY '))[1]
      ops = computations[name] = []
      if line.startswith('ENTRY '):
        entry = name
    elif line.startswith('}') and ops is not None:
      types = {op.name: op.type for op in ops}
      for i, op in enumerate(ops):
        inputs = tuple(types.get(name, '') for name in op.operands)
        ops[i] = op._replace(inputs=inputs)
      ops = None
    elif ops is not None and ' = ' in line:
      ops.append(_parse_op(line))
  if entry is None:
    raise ValueError('the text has no ENTRY: it is no HLO module.')
  return computations, entry


def _parse_op(line) -> Op:
  left, _, right = line.partition(' = ')
  name = _NAME.match(left.strip().removeprefix('ROOT '))[1]
  end = _close(right, 0) if right.startswith('(') else right.index(' ')
  kind, rest = right[:end], right[end:].strip()
  opcode = rest[: rest.index('(')]
  end = _close(rest, len(opcode))
  inside = rest[len(opcode) + 1 : end - 1]
  operands = tuple(re.findall(r'%([\w.-]+)', inside))
  if opcode == 'constant':  # its value
    operands = (inside,)
  return Op(name, kind, opcode, operands, rest[end:])


def _close(text, start) -> int:
  """Returns the index after the bracket that matches the bracket at `start`."""
  depth = 0
  for i in range(start, len(text)):
    depth += {'(': 1, ')': -1}.get(text[i], 0)
    if not depth:
      return i + 1
  raise ValueError(f'unbalanced brackets in {text[:80]!r}')


def list_called(op: Op) -> list[str]:
  """Returns the computations that an op runs, except reductions' operations."""
  if op.opcode == 'while':
    return [re.search(r'\bbody=%?([\w.-]+)', op.rest)[1]]
  if op.opcode == 'conditional':
    listed = re.search(r'branch_computations=\{([^}]*)\}', op.rest)
    if listed:
      return _NAME.findall(listed[1])
    return re.findall(r'\b(?:true|false)_computation=%?([\w.-]+)', op.rest)
  if op.opcode in ('fusion', 'call', 'call-start', 'async-start'):
    return re.findall(r'\b(?:calls|to_apply)=%?([\w.-]+)', op.rest)
  return []


def count_bytes(type_text: str) -> int:
  """Returns the bytes of a type, all parts of a tuple together.

  >>> count_bytes('(bf16[3,5]{1,0:T(8,128)}, pred[7], token[], f32[])')
  41
  """
  total = 0
  for dtype, dims in _SHAPE.findall(type_text):
    bits = {'pred': 8, 'token': 0}.get(dtype)
    if bits is None:
      bits = int(re.search(r'\d+', dtype)[0])
    total += math.prod(int(d) for d in dims.split(',') if d) * bits // 8
  return total


def count_trips(op: Op, computations: dict[str, list[Op]]) -> int:
  """Returns the iterations of a loop, which counts up from 0 by 1.

  A loop that compares with 0 counts as none: it is the second pass of the
  decoder, which rarely runs.
  """
  known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', op.rest)
  if known:
    return int(known[1])
  name = re.search(r'\bcondition=%?([\w.-]+)', op.rest)[1]
  limits = _list_limits(name, computations)
  if len(limits) != 1:
    raise ValueError(f'{name} does not say how often {op.name} runs.')
  return limits[0]


def _list_limits(name, computations) -> list[int]:
  """Returns the constants of a loop's condition, which may be fused."""
  limits = []
  for op in computations[name]:
    if op.opcode == 'constant' and op.type.startswith(('s', 'u')):
      limits.append(int(op.operands[0]))
    for called in list_called(op):
      limits += _list_limits(called, computations)
  return limits


def _add(totals, computations, name, times=1, fused=False, aside=False):
  """Adds a computation that runs `times` times to {(what, key): count}.

  Args:
    fused: whether one estimate of the compiler covers all of it.
    aside: whether another core of the chip runs it, whose cycles do not count.
  """
  for op in computations[name]:
    if not fused and not aside:  # the parts of a fusion repeat its estimate
      totals['cycles', ''] += times * count_cycles(op)
    kind = op.opcode.removesuffix('-start')
    if op.opcode.endswith('-done') or op.opcode.endswith('-update'):
      continue  # counted at its start
    if kind in _COLLECTIVES:
      _add_collective(totals, op, kind, computations[name], name, times)
    elif kind == 'custom-call':
      target = re.search(r'custom_call_target="([^"]*)"', op.rest)[1]
      if target in _KERNELS:
        plain = re.sub(r'\.\d+$', '', op.name)
        totals['kernels', f'{plain} {_SHAPE.search(op.type)[0]}'] += times
    loops = count_trips(op, computations) if kind == 'while' else 1
    for called in list_called(op):
      _add(
        totals,
        computations,
        called,
        times * loops,
        fused or kind == 'fusion',
        aside or 'async_execution_thread="sparsecore"' in op.rest,
      )


def count_cycles(op: Op) -> int:
  return sum(map(int, _CYCLES.findall(op.rest)))


def _add_collective(totals, op, kind, ops, name, times):
  # One that overlaps several fusions occurs in each of them.
  if _CHAIN.search(op.rest) and not _has_mark(ops, 'AsyncCollectiveStart'):
    return
  # The type of a start has inputs, too.
  started = op.opcode in ('all-gather-start', 'collective-permute-start')
  output = op.type
  if started:
    _, *outputs = _SHAPE.finditer(op.type)
    output = outputs[0][0] if outputs else ''
  # On TPUs, a reduce-scatter is a fusion that keeps one part of an all-reduce.
  if kind == 'all-reduce' and 'all-reduce-scatter' in name:
    kind = 'reduce-scatter'
  totals['collectives', kind] += times
  whole = max(count_bytes(output), sum(map(count_bytes, op.inputs)))
  totals['bytes', kind] += times * whole


def _has_mark(ops, mark) -> bool:
  return any(mark in op.rest for op in ops)


def _find_overlap(computations, entry) -> tuple[collections.Counter, int]:
  """Returns {kind: asynchronous collectives}, and the cycles beside them."""
  ahead, running, beside = collections.Counter(), set(), 0
  for op in computations[entry]:
    called = [] if op.opcode == 'while' else list_called(op)
    inside = [op, *(part for name in called for part in computations[name])]
    kinds = [x.opcode.removesuffix('-start') for x in inside]
    kind = next((x for x in kinds if x in _COLLECTIVES), '')
    chain = _CHAIN.search(' '.join(x.rest for x in inside))
    name = chain[1] if chain and op.opcode == 'fusion' else op.name
    starts = op.opcode.endswith('-start') and kind
    if starts or _has_mark(inside, 'AsyncCollectiveStart'):
      ahead[kind] += 1
      running.add(name)
    if running:
      beside += count_cycles(op)
    if op.opcode.endswith('-done'):
      running.discard(op.operands[0])
    if _has_mark(inside, 'AsyncCollectiveDone'):
      running.discard(name)
  return ahead, beside


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('file', help='what preflight --hlo=FILE wrote')
  given = parser.parse_args()
  program = read(pathlib.Path(given.file).read_text())
  for kind, n in program.collectives.items():
    print(
      f'{kind}: {n:,} with {program.bytes[kind]:,} bytes, '
      f'{program.ahead.get(kind, 0):,} asynchronous'
    )
  for name, n in program.kernels.items():
    print(f'kernel {name}: {n:,}')
  share = program.beside / max(program.cycles, 1)
  print(f'{program.cycles:,} cycles, {share:.0%} beside collectives')


if __name__ == '__main__':
  main()
