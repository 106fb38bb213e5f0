"""Reads pytorch_model.bin, which torch.save wrote, where torch is installed."""

import numpy as np

from bert_jax import errors

_OLD = b'\x80'  # begins files of torch before 1.6, which cannot be mapped
_REASON = 'WeightsUnpickler error: '  # after how to trust a file all the same


def read(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a state dict; bfloat16 is converted to float32.

  torch runs no code of the file. The arrays may share memory, for tied
  parameters, and must not be changed.
  """
  advice = (
    'pip install torch, or convert it to model.safetensors where torch is '
    'installed.'
  )
  with errors.explaining(f'{path} is read by torch', advice, ImportError):
    import torch
  try:
    with open(path, 'rb') as file:
      mapped = file.read(1) != _OLD
    held = torch.load(path, weights_only=True, map_location='cpu', mmap=mapped)
    return {name: _to_numpy(x, torch) for name, x in held.items()}
  except Exception as error:  # of any type: the file may be hostile
    reason = str(error).rpartition(_REASON)[2] or type(error).__name__
    raise errors.UserError(
      f'cannot read {path}: {errors.first_line(ValueError(reason))}; copy it '
      'again, or save model.state_dict() alone with torch.save.'
    ) from error


def _to_numpy(tensor, torch) -> np.ndarray:
  half = tensor.dtype == torch.bfloat16
  return (tensor.float() if half else tensor).detach().numpy()
