"""Parses scheduled HLO text: ops, sizes of types, groups and loops."""

import math
import re
from typing import NamedTuple

import numpy as np

SHAPE = re.compile(r'\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\]')
_NAME = re.compile(r'%?([\w.-]+)')


class Op(NamedTuple):
  """An instruction: `%name = type opcode(operands), rest`."""

  name: str
  type: str
  opcode: str
  operands: tuple[str, ...]
  rest: str
  inputs: tuple[str, ...] = ()  # types of the operands


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
      ops.append(_op(line))
  if entry is None:
    raise ValueError('the text is no HLO module: it has no ENTRY.')
  return computations, entry


def _op(line) -> Op:
  left, _, right = line.partition(' = ')
  name = _NAME.match(left.strip().removeprefix('ROOT '))[1]
  end = _close(right, 0) if right.startswith('(') else right.index(' ')
  kind, rest = right[:end], right[end:].strip()
  opcode = rest[: rest.index('(')]
  end = _close(rest, len(opcode))
  inside = rest[len(opcode) + 1 : end - 1]
  if opcode in ('constant', 'parameter'):  # its value, or its number
    operands = (inside,)
  else:
    operands = tuple(re.findall(r'%([\w.-]+)', inside))
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


def parse_size(type_text: str) -> int:
  """Returns the bytes of a type, all parts of a tuple together."""
  return sum(_array_bytes(m) for m in SHAPE.finditer(type_text))


def parse_largest(type_text: str) -> int:
  """Returns the bytes of a type's largest array."""
  return max(map(_array_bytes, SHAPE.finditer(type_text)), default=0)


def _array_bytes(match) -> int:
  """Returns the bytes of `bf16[8,128]` and the like."""
  dtype, dims = match[1], match[2]
  if dtype == 'token':
    return 0
  bits = 8 if dtype == 'pred' else int(re.search(r'\d+', dtype)[0])
  count = math.prod(int(d) for d in dims.split(',') if d)
  return count * bits // 8


def find_pairs(rest: str) -> str:
  """Returns a permutation's (source, target) pairs, '0>1,1>0'; '' if none."""
  pairs = re.search(r'source_target_pairs=\{(\{[\d,{}]*\})\}', rest)
  return ','.join(
    map('>'.join, re.findall(r'(\d+),(\d+)', pairs[1] if pairs else ''))
  )


def find_group(rest: str) -> tuple[int, ...] | None:
  """Returns the devices of a collective's first group; None means all."""
  listed = re.search(r'replica_groups=\{\{([\d,]*)\}', rest)
  if listed:
    return tuple(int(d) for d in listed[1].split(','))
  # [groups,devices of each]<=[8], or <=[2,4]T(1,0): cut after transposing
  iota = re.search(
    r'replica_groups=\[\d+,(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?', rest
  )
  if iota:
    size, shape, order = iota.groups()
    return _cut(int(size), _numbers(shape), order and _numbers(order))
  # mesh['data'=4,'model'=2] {'data'}
  mesh = re.search(r'replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}', rest)
  if mesh:
    axes = re.findall(r"'([^']+)'=(\d+)", mesh[1])
    names, sizes = [a for a, _ in axes], [int(n) for _, n in axes]
    taken = [names.index(a) for a in re.findall(r"'([^']+)'", mesh[2])]
    left = [i for i in range(len(names)) if i not in taken]
    return _cut(math.prod(sizes[i] for i in taken), sizes, left + taken)
  return None


def _cut(size, shape, order) -> tuple[int, ...]:
  """Returns the first `size` numbers of a grid with transposed axes."""
  grid = np.arange(math.prod(shape)).reshape(shape).transpose(order)
  return tuple(grid.reshape(-1)[:size].tolist())


def _numbers(text) -> list[int]:
  return [int(n) for n in text.split(',')]


def count_trips(op: Op, computations: dict[str, list[Op]]) -> int:
  """Returns the iterations of a loop that counts up from 0 by 1.

  A loop that runs while a number is above 0 counts as 0 iterations: it is the
  second pass of the decoder, which rarely runs.

  Raises:
    ValueError: if its condition does not say how often it runs.
  """
  known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', op.rest)
  if known:
    return int(known[1])
  name = re.search(r'\bcondition=%?([\w.-]+)', op.rest)[1]
  limits = _limits(name, computations)
  if len(limits) != 1 or not (limits[0] or _above_zero(name, computations)):
    raise ValueError(
      f'loop {op.name}: its condition {name} does not say how often it runs.'
    )
  return limits[0]


def _above_zero(name, computations, zeros=frozenset()) -> bool:
  """Returns whether a loop's condition is "a number is above 0".

  Args:
    zeros: for a fused condition, indices of parameters that are the constant 0.
  """
  known = {
    op.name
    for op in computations[name]
    if (op.opcode == 'constant' and op.operands == ('0',))
    or (op.opcode == 'parameter' and op.operands[0] in zeros)
  }
  root = computations[name][-1]
  sides = [operand in known for operand in root.operands]
  if root.opcode == 'fusion':
    (called,) = list_called(root)
    inside = {str(i) for i, is_zero in enumerate(sides) if is_zero}
    return _above_zero(called, computations, inside)
  if root.opcode != 'compare':
    return False
  direction = re.search(r'direction=(\w+)', root.rest)[1]
  return (direction, sides) in (('GT', [False, True]), ('LT', [True, False]))


def _limits(name, computations) -> list[int]:
  """Returns the constants of a loop's condition, which may be fused."""
  found = []
  for op in computations[name]:
    if op.opcode == 'constant' and op.type.startswith(('s', 'u')):
      found.append(int(op.operands[0]))
    for called in list_called(op):
      found += _limits(called, computations)
  return found
