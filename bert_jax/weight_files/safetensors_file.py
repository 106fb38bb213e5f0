"""Reads safetensors files, also in bfloat16.

The `safetensors` library checks the header: dtypes, shapes, and that the
tensors lie one after the other from its end to the end of the file. The numbers
are read here, because its numpy side has no bfloat16.
"""

import math
import os
import reprlib
import struct

import numpy as np
import safetensors

from bert_jax import errors
from bert_jax.weight_files import raw_numbers

# The library takes 100 MB, of which it makes more than 1 GB.
_MAX_HEADER = 1 << 20  # bytes; that of BERT-large takes 45 kB
_MAX_AXES = 8
_DTYPES = {
  'F64': 'float64',
  'F32': 'float32',
  'F16': 'float16',
  'BF16': raw_numbers.BFLOAT16,
  'I64': 'int64',
  'I32': 'int32',
  'I16': 'int16',
  'I8': 'int8',
  'U8': 'uint8',
  'BOOL': 'bool',
}


def read(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a safetensors file.

  Args:
    path: local file.

  Returns:
    dict of name to array. bfloat16 becomes float32.

  Raises:
    errors.UserError: for a file that cannot be read or is malformed.
  """
  try:
    with open(path, 'rb') as f:
      start = _after_header(f)
      with safetensors.safe_open(path, framework='np') as header:
        return _tensors(f, start, header)
  except safetensors.SafetensorError as error:
    raise errors.UserError(
      f'cannot read {path}: {" ".join(str(error).split())}; copy or export it '
      'again.'
    ) from error
  except OSError as error:
    raise errors.UserError(f'cannot read {path}: {error.strerror}.') from error
  except errors.UserError as error:
    raise errors.UserError(f'cannot read {path}: {error}') from error


def _after_header(f):
  """Returns the byte at which the numbers begin."""
  size = os.fstat(f.fileno()).st_size
  first = f.read(8)
  length = struct.unpack('<Q', first)[0] if len(first) == 8 else 0
  if not 0 < length <= min(size - 8, _MAX_HEADER):
    raise errors.UserError(
      f'its header takes {length:,} bytes, but the file has {size:,} and a '
      f'header at most {_MAX_HEADER:,}; copy or export it again.'
    )
  return 8 + length


def _tensors(f, at, header):
  tensors = {}
  for name in header.offset_keys():  # in the order of the file
    view = header.get_slice(name)
    kind, shape = view.get_dtype(), view.get_shape()
    if kind not in _DTYPES or len(shape) > _MAX_AXES:
      raise errors.UserError(
        f'its tensor {reprlib.repr(name)} is {kind} with {len(shape)} axes; '
        f'up to {_MAX_AXES} axes of {", ".join(_DTYPES)} are read.'
      )
    numbers = raw_numbers.read(f, at, math.prod(shape), _DTYPES[kind])
    at += len(numbers) * raw_numbers.get_item_size(_DTYPES[kind])
    tensors[name] = numbers.reshape(shape)
  return tensors
