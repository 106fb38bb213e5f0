"""Interprets the pickles in a torch.save file without running code from them.

The few globals that a state dict needs have substitutes here; see
torch/_utils.py, and persistent_load in torch/serialization.py.
"""

import reprlib
from typing import Any, NamedTuple

import numpy as np

from bert_jax import errors
from bert_jax.weight_files import pickle_machine, raw_numbers

_MAX_AXES = 8
_STORAGES = {
  'torch.FloatStorage': np.dtype(np.float32),
  'torch.DoubleStorage': np.dtype(np.float64),
  'torch.HalfStorage': np.dtype(np.float16),
  'torch.BFloat16Storage': raw_numbers.BFLOAT16,
  'torch.LongStorage': np.dtype(np.int64),
  'torch.IntStorage': np.dtype(np.int32),
  'torch.ShortStorage': np.dtype(np.int16),
  'torch.CharStorage': np.dtype(np.int8),
  'torch.ByteStorage': np.dtype(np.uint8),
  'torch.BoolStorage': np.dtype(np.bool),
}


class Storage(NamedTuple):
  """A flat array of numbers elsewhere in the file.

  Attributes:
    dtype: type of the numbers.
    key: the storage's key in the file.
    size: number of elements.
  """

  dtype: np.dtype
  key: str
  size: int


class Tensor(NamedTuple):
  """A view of a storage; offset and strides are in elements."""

  storage: Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


def load(data: bytes, start: int = 0) -> tuple[Any, int, dict[str, Storage]]:
  """Interprets one pickle.

  Args:
    data: bytes that contain the pickle.
    start: index of its first byte.

  Returns:
    (value, end, storages): the value, in which an OrderedDict is a dict and a
    parameter a `Tensor`; the index after the pickle's last byte; and
    {key: `Storage`} of all storages that it refers to.

  Raises:
    errors.UserError: as `pickle_machine.load`; if the pickle names other
      globals than a state dict's; or if a tensor does not fit its storage.
  """
  storages = {}

  def persistent(value):
    storage = _storage(value)
    if storages.setdefault(storage.key, storage) != storage:
      raise errors.UserError(
        f'its pickle gives storage {reprlib.repr(storage.key)} two types or '
        'sizes; copy it again.'
      )
    return storage

  value, end = pickle_machine.load(data, start, _CALLS, persistent)
  return value, end, storages


def _storage(persistent_id):
  """Returns the Storage of ('storage', type, key, device, size)."""
  word, kind, key, _, size, *view = pickle_machine.check_type(
    tuple, persistent_id
  )
  wrong = (
    word != 'storage'
    or type(kind) is not pickle_machine.Global
    or kind.name not in _STORAGES
    or type(key) is not str
    or type(size) is not int
    or not 0 <= size < 1 << 63
    or view not in ([], [None])  # files of before 2020 have a sixth field
  )
  if wrong:
    raise errors.UserError(
      'its pickle has a persistent id that is no storage; copy it again.'
    )
  return Storage(_STORAGES[kind.name], key, size)


def _tensor(storage, offset, shape, strides, grad, hooks, attributes=None):
  """Stands in for torch._utils._rebuild_tensor_v2."""
  del grad, hooks, attributes  # do not affect the values
  of = pickle_machine.check_type
  of(Storage, storage)
  axes = len(of(tuple, shape))
  if axes > _MAX_AXES or axes != len(of(tuple, strides)):
    raise TypeError
  if not all(type(n) is int and n >= 0 for n in (offset, *shape, *strides)):
    raise TypeError
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


def _parameter(tensor, grad, hooks):
  """Stands in for torch._utils._rebuild_parameter."""
  del grad, hooks
  return pickle_machine.check_type(Tensor, tensor)


_CALLS = {
  'collections.OrderedDict': lambda: {},
  'torch._utils._rebuild_tensor_v2': _tensor,
  'torch._utils._rebuild_parameter': _parameter,
  **dict.fromkeys(_STORAGES),
}
