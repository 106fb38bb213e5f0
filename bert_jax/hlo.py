"""Reads what a compiled step does from its scheduled HLO text."""

import collections
import dataclasses
import math
import re

_SHAPE = re.compile(r'\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\]')
_NAME = re.compile(r'%?([\w.-]+)')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_COLLECTIVES = (
  *('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all'),
  'collective-permute',
)
# Custom calls with a program of their own, which the compiler cannot cost; the
# others are notes to the compiler or parts of ops that it does cost.
_KERNELS = ('tpu_custom_call', 'MosaicFusion')


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a device does in one execution, loops unrolled.

  Attributes:
    cycles: estimated by the compiler; it gives none for collectives, random
      bits and kernels.
    rng_bytes: of random bits that are generated.
    collectives: {kind: how many}.
    collective_bytes: {kind: bytes of the whole arrays, as the largest of what
      goes in and what comes out}.
    sent_bytes: that the device sends in them, by the best algorithms.
    kernels: custom calls with a program of their own.
    kernel_bytes: that these read and write.
    custom_calls: {target: how many}, kernels among them.
  """

  cycles: float = 0
  rng_bytes: float = 0
  collectives: dict = dataclasses.field(default_factory=dict)
  collective_bytes: dict = dataclasses.field(default_factory=dict)
  sent_bytes: float = 0
  kernels: float = 0
  kernel_bytes: float = 0
  custom_calls: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Op:
  """An instruction: `%name = type opcode(operands), rest`."""

  name: str
  type: str
  opcode: str
  operands: tuple[str, ...]
  rest: str


def cost(text: str) -> Cost:
  """Adds up what a device does.

  Args:
    text: of `compiled.as_text()`; `"estimated_cycles"` stands in the text of
      TPU programs only.

  Raises:
    ValueError: if it is no HLO module, or loops by a condition that does not
      compare with a constant.
  """
  computations, entry = _parse(text)
  devices = re.search(r'num_partitions=(\d+)', text)
  totals = collections.Counter()
  _add(
    totals,
    computations,
    entry,
    times=1,
    devices=int(devices[1]) if devices else 1,
    fused=False,
  )

  def named(prefix):
    return {
      key[1]: n
      for key, n in sorted(totals.items(), key=str)
      if isinstance(key, tuple) and key[0] == prefix
    }

  return Cost(
    cycles=totals['cycles'],
    rng_bytes=totals['rng_bytes'],
    collectives=named('collectives'),
    collective_bytes=named('collective_bytes'),
    sent_bytes=totals['sent_bytes'],
    kernels=totals['kernels'],
    kernel_bytes=totals['kernel_bytes'],
    custom_calls=named('custom_calls'),
  )


def extrapolate(few: Cost, more: Cost, layers: tuple[int, int, int]) -> Cost:
  """Returns a + b L of two costs.

  Args:
    few: with layers[0].
    more: with layers[1].
    layers: the third is the L to extrapolate to.
  """

  def line(a, b):
    if isinstance(a, dict):
      return {k: line(a.get(k, 0), b.get(k, 0)) for k in sorted({*a, *b})}
    return extrapolate_number(a, b, layers)

  return Cost(
    **{
      field.name: line(getattr(few, field.name), getattr(more, field.name))
      for field in dataclasses.fields(Cost)
    }
  )


def extrapolate_number(a: float, b: float, layers: tuple[int, int, int]):
  """Returns a number at layers[2] on the line through a and b, at least 0."""
  x, y, z = layers
  return max(a + (b - a) * (z - x) / (y - x), 0)


def _add(totals, computations, name, *, times, devices, fused):
  """Adds a computation that runs `times` times."""
  types = {op.name: op.type for op in computations[name]}
  for op in computations[name]:
    if not fused:  # a fusion has one figure, its parts repeat it
      for found in _CYCLES.findall(op.rest):
        totals['cycles'] += times * int(found)
    kind = op.opcode.removesuffix('-start')
    if op.opcode.endswith('-done') or op.opcode.endswith('-update'):
      continue  # counted at its start
    if kind in _COLLECTIVES:
      _add_collective(totals, op, kind, name, types, times, devices)
    elif kind == 'rng-bit-generator':
      totals['rng_bytes'] += times * _largest(op.type)
    elif kind == 'custom-call':
      target = re.search(r'custom_call_target="([^"]*)"', op.rest)[1]
      totals['custom_calls', target] += times
      if target in _KERNELS:
        totals['kernels'] += times
        arrays = [op.type, *(types.get(o, '') for o in op.operands)]
        totals['kernel_bytes'] += times * sum(map(_bytes, arrays))
    loops = _trips(op, computations) if kind == 'while' else 1
    for called in _called(op):
      _add(
        totals,
        computations,
        called,
        times=times * loops,
        devices=devices,
        fused=fused or kind == 'fusion',
      )


def _add_collective(totals, op, kind, name, types, times, devices):
  size = max(_bytes(_result(op)), sum(_bytes(types[o]) for o in op.operands))
  n = _group_size(op.rest) or devices
  # A fusion that keeps one part of a sum is how TPUs do a reduce-scatter.
  if kind == 'all-reduce' and 'all-reduce-scatter' in name:
    kind = 'reduce-scatter'
  rounds = {'all-reduce': 2 * (n - 1) / n, 'collective-permute': 1}
  totals['collectives', kind] += times
  totals['collective_bytes', kind] += times * size
  totals['sent_bytes'] += times * size * rounds.get(kind, (n - 1) / n)


def _result(op):
  """Returns the type of what comes out; a start also lists what goes in."""
  started = op.opcode in ('all-gather-start', 'collective-permute-start')
  if not started:
    return op.type
  return ' '.join(m[0] for m in list(_SHAPE.finditer(op.type))[1:2])


def _group_size(rest) -> int | None:
  """Returns how many devices take part in a collective."""
  listed = re.search(r'replica_groups=\{\{([\d,]*)\}', rest)
  if listed:
    return len(listed[1].split(','))
  iota = re.search(r'replica_groups=\[\d+,(\d+)\]', rest)
  if iota:
    return int(iota[1])
  # mesh['data'=4,'model'=2] {'data'}
  mesh = re.search(r'replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}', rest)
  if mesh:
    sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
    return math.prod(int(sizes[a]) for a in re.findall(r"'([^']+)'", mesh[2]))
  return None


def _called(op) -> list[str]:
  """Returns the computations that an op runs; reductions cost no own time."""
  if op.opcode == 'while':
    return [re.search(r'\bbody=%?([\w.-]+)', op.rest)[1]]
  if op.opcode == 'conditional':
    listed = re.search(r'branch_computations=\{([^}]*)\}', op.rest)
    if listed:
      return _NAME.findall(listed[1])
    return re.findall(r'\b(?:true|false)_computation=%?([\w.-]+)', op.rest)
  if op.opcode in ('fusion', 'call', 'async-start'):
    return re.findall(r'\b(?:calls|to_apply)=%?([\w.-]+)', op.rest)
  return []


def _trips(op, computations) -> int:
  """Returns how often a loop runs that counts up from 0 by 1."""
  known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', op.rest)
  if known:
    return int(known[1])
  name = re.search(r'\bcondition=%?([\w.-]+)', op.rest)[1]
  limits = _limits(name, computations)
  if len(limits) != 1:
    raise ValueError(f'loop {op.name}: its condition {name} has no one limit.')
  return limits[0]


def _limits(name, computations) -> list[int]:
  """Returns the constants of a loop's condition, also where it is fused."""
  found = []
  for op in computations[name]:
    if op.opcode == 'constant' and op.type.startswith(('s', 'u')):
      found.append(int(op.operands[0]))
    for called in _called(op):
      found += _limits(called, computations)
  return found


def _bytes(type_text) -> int:
  """Returns the bytes of a type, all parts of a tuple together."""
  return sum(_array_bytes(m) for m in _SHAPE.finditer(type_text))


def _largest(type_text) -> int:
  """Returns the bytes of a type's largest array."""
  return max(map(_array_bytes, _SHAPE.finditer(type_text)), default=0)


def _array_bytes(match) -> int:
  """Returns the bytes of `bf16[8,128]` and the like."""
  dtype, dims = match[1], match[2]
  if dtype == 'token':
    return 0
  bits = 8 if dtype == 'pred' else int(re.search(r'\d+', dtype)[0])
  count = math.prod(int(d) for d in dims.split(',') if d)
  return count * bits // 8


def _parse(text) -> tuple[dict[str, list[_Op]], str]:
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


def _op(line) -> _Op:
  left, _, right = line.partition(' = ')
  name = _NAME.match(left.strip().removeprefix('ROOT '))[1]
  end = _close(right, 0) if right.startswith('(') else right.index(' ')
  kind, rest = right[:end], right[end:].strip()
  opcode = rest[: rest.index('(')]
  end = _close(rest, len(opcode))
  inside = rest[len(opcode) + 1 : end - 1]
  if opcode == 'constant':
    operands = (inside,)
  else:
    operands = tuple(re.findall(r'%([\w.-]+)', inside))
  return _Op(name, kind, opcode, operands, rest[end:])


def _close(text, start) -> int:
  """Returns where the bracket that opens at `start` has closed."""
  depth = 0
  for i in range(start, len(text)):
    depth += {'(': 1, ')': -1}.get(text[i], 0)
    if not depth:
      return i + 1
  raise ValueError(f'unbalanced brackets in {text[:80]!r}')
