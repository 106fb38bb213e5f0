"""Parses scheduled HLO text into ops, and the sizes of their types."""

import dataclasses
import math
import re

SHAPE = re.compile(r'\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\]')
# With its layout, in which S(n) names a memory on the chip.
_PLACED = re.compile(r'\b(pred|[a-z]+\d+\w*)\[([\d,]*)\](\{[^}]*\})?')
_NAME = re.compile(r'%?([\w.-]+)')


@dataclasses.dataclass(frozen=True)
class Op:
  """An instruction: `%name = type opcode(operands), rest`."""

  name: str
  type: str
  opcode: str
  operands: tuple[str, ...]
  rest: str


def parse(text: str) -> tuple[dict[str, list[Op]], str]:
  """Returns ({computation: its ops}, the entry's name)."""
  computations, entry, ops = {}, None, None
  for line in text.splitlines():
    if line[:1] in ('%', 'E') and line.rstrip().endswith('{'):
      name = _NAME.match(line.removeprefix('ENTRY '))[1]
      ops = computations[name] = []
      if line.startswith('ENTRY '):
        entry = name
    elif line.startswith('}'):
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
  """Returns the index after the bracket that closes the one at `start`."""
  depth = 0
  for i in range(start, len(text)):
    depth += {'(': 1, ')': -1}.get(text[i], 0)
    if not depth:
      return i + 1
  raise ValueError(f'unbalanced brackets in {text[:80]!r}')


def list_called(op: Op) -> list[str]:
  """Returns the computations that an op runs, except those of reductions."""
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


def parse_hbm_size(type_text: str) -> int:
  """Returns the bytes of the parts of a type that are in main memory (HBM)."""
  return sum(
    _array_bytes(m)
    for m in _PLACED.finditer(type_text)
    if 'S(' not in (m[3] or '')
  )


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
