"""Reads safetensors files.

The `safetensors` library checks the header (dtypes, shapes, and that the
tensors fill the rest of the file without gaps) and reads the tensors. This
module checks what the library does not: the size of the header and of the file,
and which dtypes a BERT may have.
"""

import os
import reprlib
import struct

import ml_dtypes
import numpy as np
import safetensors

from bert_jax import errors
from bert_jax.weight_files import local_files

# The library accepts 100 MB, for which it allocates more than 1 GB.
_MAX_HEADER = 1 << 20  # bytes; BERT-large's header takes 45 kB
_MAX_AXES = 8
_DTYPES = 'F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL'.split()


def read(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a local file; bfloat16 is converted to float32."""
  what, kinds = f'cannot read {path}', (safetensors.SafetensorError, OSError)
  with (
    errors.explaining(what, 'copy or export it again.', kinds),
    errors.within(what),
  ):
    _check_sizes(path)
    with safetensors.safe_open(path, framework='np') as f:
      return {name: _read_tensor(f, name) for name in f.offset_keys()}


def _check_sizes(path):
  """Checks the sizes of a file and its header before allocating memory."""
  with open(path, 'rb') as f:
    size = os.fstat(f.fileno()).st_size
    first = f.read(8)
  length = struct.unpack('<Q', first)[0] if len(first) == 8 else 0
  if not 0 < length <= min(size - 8, _MAX_HEADER):
    raise errors.UserError(
      f'its header takes {length:,} bytes, but the file has {size:,} and a '
      f'header at most {_MAX_HEADER:,}; copy or export it again.'
    )
  local_files.check_memory(path)


def _read_tensor(f, name):
  view = f.get_slice(name)
  kind, axes = view.get_dtype(), len(view.get_shape())
  if kind not in _DTYPES or axes > _MAX_AXES:
    raise errors.UserError(
      f'its tensor {reprlib.repr(name)} is {kind} with {axes} axes; up to '
      f'{_MAX_AXES} axes of {", ".join(_DTYPES)} are read.'
    )
  tensor = f.get_tensor(name)  # fails for bfloat16 unless ml_dtypes is imported
  half = tensor.dtype == ml_dtypes.bfloat16
  return tensor.astype(np.float32) if half else tensor
