"""Reads safetensors files.

The library checks the header: dtypes, shapes, and that the tensors fill the
rest of the file without gaps.
"""

import ml_dtypes
import numpy as np
import safetensors

from bert_jax import errors


def read(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a local file; bfloat16 is converted to float32."""
  advice = 'copy or export it again.'
  # Of any type, such as for a kind of numbers that numpy does not have.
  with (
    errors.explaining(f'cannot read {path}', advice, Exception),
    safetensors.safe_open(path, framework='np') as file,
  ):
    return {name: _read_tensor(file, name) for name in file.offset_keys()}


def _read_tensor(file, name) -> np.ndarray:
  tensor = file.get_tensor(name)  # of bfloat16, since ml_dtypes is imported
  half = tensor.dtype == ml_dtypes.bfloat16
  return tensor.astype(np.float32) if half else tensor
