"""Interprets pickles without running code from them.

A pickle is a program for a stack machine that may call any function of any
module. Here only the opcodes that build numbers, strings, tuples, lists and
dicts are supported. A global is just a name, and the caller provides functions
for the few names that may be called. Everything else is an error that gives the
opcode or the name. `pickletools` of the standard library describes the opcodes,
and reads their arguments here.

`pickle.Unpickler` with `find_class` overridden is not enough. It does prevent
other calls, but a few bytes make it allocate gigabytes (a large index into the
memo), a deeply nested tuple as a key crashes the process, and hashing a tuple
of twice the same tuple takes time that doubles with each level. Checking all
opcodes first prevents only the first.
"""

import io
import pickletools
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax import errors

# With these limits, a hostile pickle takes less than 50 MB of memory.
MAX_BYTES = 1 << 20  # BERT-large's pickle takes 73 kB
_MAX_OPCODES = 100_000  # BERT-large's pickle has 15,000
_MAX_LINE = 500  # bytes of the name of a module or of a global in it

_OPCODES = {op.code.encode('latin-1'): op for op in pickletools.opcodes}
_ALLOWED = set(
  'PROTO FRAME NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINUNICODE '
  'SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND '
  'APPENDS EMPTY_DICT SETITEM SETITEMS MARK BINPUT LONG_BINPUT MEMOIZE BINGET '
  'LONG_BINGET GLOBAL STACK_GLOBAL BINPERSID REDUCE BUILD STOP'.split()
)
_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False}


class Global(NamedTuple):
  """The name of a global, as a value."""

  name: str


class _Mark:
  """Where the items of a tuple, list or dict begin on the stack."""


def load(
  data: bytes,
  start: int,
  calls: Mapping[str, Callable | None],
  persistent: Callable[[Any], Any],
) -> tuple[Any, int]:
  """Interprets one pickle.

  Args:
    data: bytes that contain the pickle.
    start: index of its first byte.
    calls: {global: function}, the globals that the pickle may name, each with
      the function to call for it, or None if it may not be called.
    persistent: returns the value of a persistent id.

  Returns:
    (value, end): the value, built of None, numbers, strings, tuples, lists,
    dicts and results of `calls` and `persistent`; and the index after the
    pickle's last byte.

  Raises:
    errors.UserError: if the pickle has anything else, is malformed, or is
      larger than a BERT's can be.
  """
  stack, memo, file = [], {}, io.BytesIO(data)
  file.seek(start)
  try:
    for _ in range(_MAX_OPCODES):
      at = file.tell()
      name, argument = _decode(file)
      if name == 'STOP':
        return stack.pop(), file.tell()
      if name in ('GLOBAL', 'STACK_GLOBAL', 'REDUCE', 'BINPERSID'):
        _refer(name, argument, stack, calls, persistent)
      else:
        _build(name, argument, stack, memo)
  except (LookupError, TypeError, ValueError) as error:
    if isinstance(error, errors.UserError):
      raise
    raise errors.UserError(
      f'its pickle is malformed at byte {at - start}; copy it again.'
    ) from error
  raise errors.UserError(
    f'its pickle has more than {_MAX_OPCODES:,} opcodes; no BERT needs as many.'
  )


def _decode(file):
  """Returns the name of the next opcode, and its argument or None."""
  code = file.read(1)
  if not code:
    raise errors.UserError(
      f'its pickle is cut short or takes more than {MAX_BYTES:,} bytes; copy '
      'it again.'
    )
  opcode = _OPCODES[code]
  if opcode.name not in _ALLOWED:
    raise errors.UserError(
      f'its pickle has the opcode {opcode.name}, which no state dict needs and '
      'which may run code; get the model as safetensors.'
    )
  if opcode.name == 'GLOBAL':
    return opcode.name, (_read_line(file), _read_line(file))
  argument = opcode.arg.reader(file) if opcode.arg else None
  if isinstance(argument, str):
    argument.encode()  # pickletools accepts lone surrogates
  return opcode.name, argument


def _read_line(file):
  line = file.readline(_MAX_LINE)
  if not line.endswith(b'\n'):
    raise ValueError
  return line[:-1].decode()


def _build(name, argument, stack, memo):
  """Executes one opcode; raises IndexError if the stack is too short."""
  match name:
    case 'PROTO' | 'FRAME':
      pass
    case 'BININT' | 'BININT1' | 'BININT2' | 'LONG1':
      stack.append(argument)
    case 'BINUNICODE' | 'SHORT_BINUNICODE':
      stack.append(argument)
    case 'NONE' | 'NEWTRUE' | 'NEWFALSE':
      stack.append(_CONSTANTS[name])
    case 'BINPUT' | 'LONG_BINPUT':
      memo[argument] = stack[-1]
    case 'MEMOIZE':
      memo[len(memo)] = stack[-1]
    case 'BINGET' | 'LONG_BINGET':
      stack.append(memo[argument])
    case 'MARK':
      stack.append(_Mark)
    case 'EMPTY_TUPLE':
      stack.append(())
    case 'TUPLE':
      stack.append(tuple(_items(stack)))
    case 'TUPLE1' | 'TUPLE2' | 'TUPLE3':
      size = int(name[-1])
      if len(stack) < size:
        raise IndexError
      stack[-size:] = [tuple(stack[-size:])]
    case 'EMPTY_LIST':
      stack.append([])
    case 'APPEND' | 'APPENDS':
      items = _items(stack) if name == 'APPENDS' else [stack.pop()]
      check_type(list, stack[-1]).extend(items)
    case 'EMPTY_DICT':
      stack.append({})
    case 'SETITEM' | 'SETITEMS':
      items = (
        _items(stack) if name == 'SETITEMS' else [stack.pop(-2), stack.pop()]
      )
      # Only strings: hashing a tuple may recurse too deep or take too long.
      keys = [check_type(str, key) for key in items[::2]]
      check_type(dict, stack[-1]).update(zip(keys, items[1::2], strict=True))
    case 'BUILD':
      stack.pop()  # the attribute _metadata of a state dict: versions of layers
      check_type(dict, stack[-1])


def _refer(name, argument, stack, calls, persistent):
  """Executes an opcode that refers to something outside the pickle."""
  if name == 'BINPERSID':
    stack.append(persistent(stack.pop()))
    return
  if name == 'REDUCE':
    arguments = check_type(tuple, stack.pop())
    function = check_type(Global, stack.pop())
    stack.append(calls[function.name](*arguments))  # TypeError for None
    return
  if name == 'STACK_GLOBAL':
    attribute = check_type(str, stack.pop())
    argument = check_type(str, stack.pop()), attribute
  dotted = '.'.join(argument)
  if dotted not in calls:
    raise errors.UserError(
      f'its pickle asks for {reprlib.repr(dotted)}, which no state dict needs '
      'and which may run code; get the model as safetensors.'
    )
  stack.append(Global(dotted))


def check_type(kind: type, value: Any):
  """Returns a value; raises TypeError unless its type is exactly `kind`."""
  if type(value) is not kind:
    raise TypeError
  return value


def _items(stack):
  """Pops the items above the last mark, and the mark, off the stack."""
  items = []
  while (item := stack.pop()) is not _Mark:
    items.append(item)
  return items[::-1]
