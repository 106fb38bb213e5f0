"""How often the loops of a compiled program run, from its HLO text."""

import re

from bert_jax.preflight import hlo_text


def count_trips(
  op: hlo_text.Op, computations: dict[str, list[hlo_text.Op]]
) -> int:
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
    (called,) = hlo_text.list_called(root)
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
    for called in hlo_text.list_called(op):
      found += _limits(called, computations)
  return found
