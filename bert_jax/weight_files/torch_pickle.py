"""Reads the pickles in a torch.save file without running code from them.

A pickle is a program for a stack machine, which may call any function of any
module. Here `find_class` knows substitutes for the few globals that a state
dict needs (see torch/_utils.py, and persistent_load in torch/serialization.py),
and imports nothing. That alone is not enough: in a few bytes, a large index
into the memo allocates gigabytes, a deeply nested tuple as a key crashes the
process, and hashing a tuple of twice the same tuple takes time that doubles
with each level. So all opcodes are checked first.
"""

import io
import pickle
import pickletools
import reprlib
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bert_jax import errors

# With these limits, a hostile pickle takes less than 50 MB of memory.
MAX_BYTES = 1 << 20  # BERT-large's pickle takes 73 kB
_MAX_OPCODES = 100_000  # BERT-large's pickle has 15,000
_MAX_AXES = 8

_TEXTS = {'BINUNICODE', 'SHORT_BINUNICODE'}
_ALLOWED = _TEXTS | set(
  'PROTO FRAME NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 EMPTY_TUPLE '
  'TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM '
  'SETITEMS MARK BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL '
  'STACK_GLOBAL BINPERSID REDUCE BUILD STOP'.split()
)
# Opcodes that leave on the stack a value that was there before.
_KEEP = {'APPEND', 'APPENDS', 'SETITEM', 'SETITEMS', 'BUILD', 'MEMOIZE'}
_MALFORMED = (
  pickle.UnpicklingError,
  AttributeError,
  EOFError,
  LookupError,
  TypeError,
  ValueError,
)

_STORAGES = {
  'torch.FloatStorage': np.dtype(np.float32),
  'torch.DoubleStorage': np.dtype(np.float64),
  'torch.HalfStorage': np.dtype(np.float16),
  'torch.BFloat16Storage': np.dtype(ml_dtypes.bfloat16),
  'torch.LongStorage': np.dtype(np.int64),
  'torch.IntStorage': np.dtype(np.int32),
  'torch.ShortStorage': np.dtype(np.int16),
  'torch.CharStorage': np.dtype(np.int8),
  'torch.ByteStorage': np.dtype(np.uint8),
  'torch.BoolStorage': np.dtype(np.bool),
}


class Storage(NamedTuple):
  """A flat array elsewhere in the file: its key there, and `size` elements."""

  dtype: np.dtype
  key: str
  size: int


class Tensor(NamedTuple):
  """A view of a storage; offset and strides are in elements."""

  storage: Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


class _Dict(dict):
  """Stands in for collections.OrderedDict."""

  __slots__ = ()

  def __init__(self):  # without values, whose names would not be checked
    super().__init__()

  def __setstate__(self, state):
    """Ignores the attribute _metadata of a state dict: versions of layers."""


def load(data: bytes, start: int = 0) -> tuple[Any, int, dict[str, Storage]]:
  """Reads one pickle.

  Returns:
    (value, end, storages): the value, in which an OrderedDict is a dict and a
    parameter a `Tensor`; the index after the pickle's last byte; and
    {key: `Storage`} of all storages that it refers to.

  Raises:
    errors.UserError: if the pickle is malformed, larger than a BERT's can be,
      or has an opcode or a global that no state dict needs; or if a tensor does
      not fit its storage.
  """
  with errors.explaining(
    'its pickle is malformed', 'copy it again.', _MALFORMED
  ):
    end = _check_opcodes(data, start)
    unpickler = _Unpickler(io.BytesIO(data[start:end]))
    return unpickler.load(), end, unpickler.storages


def _check_opcodes(data, start) -> int:
  """Checks a pickle, and returns the index after its last byte."""
  file = io.BytesIO(data)
  file.seek(start)
  # For each value on the stack, the opcode that made it; a list for each mark.
  stacks, memo = [[]], {}
  for number, (op, argument, _) in enumerate(pickletools.genops(file)):
    if op.name not in _ALLOWED:
      raise errors.UserError(
        f'its pickle has the opcode {op.name}, which no state dict needs and '
        'which may run code; get the model as safetensors.'
      )
    if number == _MAX_OPCODES:
      raise errors.UserError(
        f'its pickle has more than {_MAX_OPCODES:,} opcodes; no BERT needs as '
        'many.'
      )
    if isinstance(argument, str):
      argument.encode()  # pickle accepts lone surrogates
    _follow(op, argument, stacks, memo)
  return file.tell()


def _follow(op, argument, stacks, memo):
  """Applies an opcode to stacks that hold the opcodes' names, not values."""
  if op.name == 'MARK':
    stacks.append([])
    return
  above, count = [], len(op.stack_before)
  if pickletools.markobject in op.stack_before:
    above, count = stacks.pop(), count - 2
  stack = stacks[-1]
  first = len(stack) - count
  if first < 0:
    raise ValueError('its stack is too short')
  taken = stack[first:] + above
  del stack[first:]
  if op.name == 'BUILD' and taken[0] != 'REDUCE':
    raise ValueError(f'it sets the state of {taken[0]}')
  # Only strings as keys: hashing a tuple may recurse too deep or take too long.
  if op.name.startswith('SETITEM') and set(taken[1::2]) - _TEXTS:
    raise ValueError('a key is not a string')
  if op.name in ('BINPUT', 'LONG_BINPUT', 'MEMOIZE'):
    place = len(memo) if argument is None else argument
    if place > _MAX_OPCODES:
      raise ValueError(f'it has a memo of more than {place:,} values')
    memo[place] = taken[0] if taken else stack[-1]
  if op.name in ('BINGET', 'LONG_BINGET'):
    stack.append(memo[argument])
  elif op.name in _KEEP:
    stack.append(taken[0])
  elif op.stack_after:
    stack.append(op.name)


class _Unpickler(pickle.Unpickler):
  """Reads a checked pickle; `storages` are the storages that it refers to."""

  def __init__(self, file):
    super().__init__(file)
    self.storages: dict[str, Storage] = {}

  def find_class(self, module, name):
    """Returns a substitute for a global; nothing is imported."""
    dotted = f'{module}.{name}'
    if dotted not in _GLOBALS_OF_TORCH:
      raise errors.UserError(
        f'its pickle asks for {reprlib.repr(dotted)}, which no state dict needs '
        'and which may run code; get the model as safetensors.'
      )
    return _GLOBALS_OF_TORCH[dotted]

  def persistent_load(self, pid):
    """Returns the Storage of ('storage', type, key, device, size)."""
    word, kind, key, _, size, *view = pid
    if (
      word != 'storage'
      or not isinstance(kind, np.dtype)
      or type(key) is not str
      or type(size) is not int
      or not 0 <= size < 1 << 63
      or view not in ([], [None])  # files of before 2020 have a sixth field
    ):
      raise errors.UserError(
        'its pickle has a persistent id that is not a storage; copy it again.'
      )
    storage = Storage(kind, key, size)
    if self.storages.setdefault(key, storage) != storage:
      raise errors.UserError(
        f'its pickle gives storage {reprlib.repr(key)} two types or sizes; copy '
        'it again.'
      )
    return storage


def _make_tensor(storage, offset, shape, strides, grad, hooks, attributes=None):
  """Stands in for torch._utils._rebuild_tensor_v2."""
  del grad, hooks, attributes  # do not affect the values
  if not (
    type(storage) is Storage
    and type(shape) is tuple
    and type(strides) is tuple
    and len(shape) == len(strides) <= _MAX_AXES
    and all(type(n) is int and n >= 0 for n in (offset, *shape, *strides))
  ):
    raise TypeError('a tensor is not made of a storage and whole numbers')
  count, last = 1, offset
  for n, stride in zip(shape, strides, strict=True):
    count *= n
    last += (n - 1) * stride
  # With a stride of 0, a tensor could have more elements than the storage.
  if not 0 < count <= storage.size or last >= storage.size:
    raise errors.UserError(
      f'its pickle has a tensor of offset {reprlib.repr(offset)}, shape '
      f'{reprlib.repr(shape)} and strides {reprlib.repr(strides)}, which does '
      f'not fit its storage of {storage.size:,} numbers; copy it again.'
    )
  return Tensor(storage, offset, shape, strides)


def _make_parameter(tensor, grad, hooks):
  """Stands in for torch._utils._rebuild_parameter."""
  del grad, hooks
  if type(tensor) is not Tensor:
    raise TypeError('a parameter is not made of a tensor')
  return tensor


_GLOBALS_OF_TORCH = {
  'collections.OrderedDict': _Dict,
  'torch._utils._rebuild_tensor_v2': _make_tensor,
  'torch._utils._rebuild_parameter': _make_parameter,
  **_STORAGES,
}
