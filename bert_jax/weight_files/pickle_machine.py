"""Interprets pickles without running anything.

A pickle is a program for a stack machine that may call any function of any
module. Of its opcodes only those are known here that build numbers, texts,
tuples, lists and dicts; a global is a mere name, and the caller brings what is
done for the few names that may be called. All else is refused by its name. The
opcodes are described in the standard library's `pickletools`.
"""

import pickletools
import reprlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax import errors

# What a hostile pickle can make of this takes less than 50 MB.
MAX_BYTES = 1 << 20  # that of BERT-large takes 73 kB,
_MAX_OPCODES = 100_000  # and has 15,000 opcodes

_OPCODES = {op.code.encode('latin-1'): op.name for op in pickletools.opcodes}
# How the argument, or its length, is stored.
_ARGUMENTS = {
  'PROTO': '<B',
  'FRAME': '<Q',  # where a reader may read ahead: of no use here
  'BININT': '<i',
  'BININT1': '<B',
  'BININT2': '<H',
  'BINPUT': '<B',
  'LONG_BINPUT': '<I',
  'BINGET': '<B',
  'LONG_BINGET': '<I',
}
_LENGTHS = {'LONG1': '<B', 'BINUNICODE': '<I', 'SHORT_BINUNICODE': '<B'}
_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False}
_PLAIN = {
  *('MARK', 'STOP', 'GLOBAL', 'STACK_GLOBAL', 'BINPERSID', 'REDUCE', 'BUILD'),
  *('EMPTY_TUPLE', 'TUPLE', 'TUPLE1', 'TUPLE2', 'TUPLE3', 'MEMOIZE'),
  *('EMPTY_LIST', 'APPEND', 'APPENDS', 'EMPTY_DICT', 'SETITEM', 'SETITEMS'),
}
_ALLOWED = {*_ARGUMENTS, *_LENGTHS, *_CONSTANTS, *_PLAIN}


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
    data: bytes that hold it.
    start: where in them it begins.
    calls: the globals that it may name, each with what is done if it is
      called, or None for one that is not called.
    persistent: returns the value of a persistent id.

  Returns:
    (value, end): what it builds, of None, numbers, texts, tuples, lists, dicts
    and what `calls` and `persistent` return; and where the next byte is.

  Raises:
    errors.UserError: for anything else, and for a pickle that is malformed or
      larger than that of a BERT can be.
  """
  stack, memo, at = [], {}, start
  try:
    for _ in range(_MAX_OPCODES):
      name, argument, at = _decode(data, at)
      if name == 'STOP':
        return stack.pop(), at
      if name in ('GLOBAL', 'STACK_GLOBAL', 'REDUCE', 'BINPERSID'):
        _refer(name, argument, stack, calls, persistent)
      else:
        _build(name, argument, stack, memo)
  except (LookupError, struct.error, TypeError, ValueError) as error:
    if isinstance(error, errors.UserError):
      raise
    raise errors.UserError(
      f'its pickle is malformed at byte {at - start}; copy it again.'
    ) from error
  raise errors.UserError(
    f'its pickle has more than {_MAX_OPCODES:,} opcodes; no BERT needs as many.'
  )


def _decode(data, at):
  """Returns an opcode's name, its argument and where the next one is."""
  code = data[at : at + 1]
  if not code:
    raise errors.UserError(
      f'its pickle is cut short or takes more than {MAX_BYTES:,} bytes; copy it '
      'again.'
    )
  name, at = _OPCODES[code], at + 1
  if name not in _ALLOWED:
    raise errors.UserError(
      f'its pickle has the opcode {name}, which no state dict needs and which '
      'may run code; get the model as safetensors.'
    )
  if name == 'GLOBAL':
    module, attribute, _ = data[at : at + 1000].split(b'\n', 2)
    end = at + len(module) + len(attribute) + 2
    return name, (module.decode(), attribute.decode()), end
  form = _ARGUMENTS.get(name) or _LENGTHS.get(name)
  if form is None:
    return name, None, at
  (value,) = struct.unpack_from(form, data, at)
  at += struct.calcsize(form)
  if name in _ARGUMENTS:
    return name, value, at
  text = data[at : at + value]
  if len(text) < value:
    raise IndexError
  at += value
  if name == 'LONG1':
    return name, int.from_bytes(text, 'little', signed=True), at
  return name, text.decode(), at


def _build(name, argument, stack, memo):
  """Does one opcode. A stack that lacks what it takes is an IndexError."""
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
      # Only texts: the hash of a tuple in a tuple in a ... has no depth limit.
      keys = [check_type(str, key) for key in items[::2]]
      check_type(dict, stack[-1]).update(zip(keys, items[1::2], strict=True))
    case 'BUILD':
      stack.pop()  # the attribute _metadata of a state dict: versions of layers
      check_type(dict, stack[-1])


def _refer(name, argument, stack, calls, persistent):
  """Does an opcode that leads out of the pickle."""
  if name == 'BINPERSID':
    stack.append(persistent(stack.pop()))
  elif name == 'REDUCE':
    arguments, function = (
      check_type(tuple, stack.pop()),
      check_type(Global, stack.pop()),
    )
    stack.append(calls[function.name](*arguments))  # TypeError for None
  else:
    if name == 'STACK_GLOBAL':
      attribute, module = (
        check_type(str, stack.pop()),
        check_type(str, stack.pop()),
      )
      argument = module, attribute
    name = '.'.join(argument)
    if name not in calls:
      raise errors.UserError(
        f'its pickle asks for {reprlib.repr(name)}, which no state dict needs '
        'and which may run code; get the model as safetensors.'
      )
    stack.append(Global(name))


def check_type(kind: type, value):
  """Returns a value; raises TypeError if it is not of just this type."""
  if type(value) is not kind:
    raise TypeError
  return value


def _items(stack):
  """Takes what is above the last mark, and the mark, off the stack."""
  items = []
  while (item := stack.pop()) is not _Mark:
    items.append(item)
  return items[::-1]
