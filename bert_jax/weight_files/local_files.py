"""Reads the files of a model's folder, and refuses links out of it."""

import collections
import os
import re
import reprlib
from collections.abc import Callable

import ml_dtypes
import numpy as np
import safetensors

from bert_jax import errors
from bert_jax.runtime import files

# The text files of a BERT, which are read into memory.
SMALL = (
  *('config.json', 'tokenizer_config.json', 'tokenizer.json', 'vocab.txt'),
  *('special_tokens_map.json', 'added_tokens.json'),
)
_MAX_SMALL = 8 << 20  # bytes; the multilingual tokenizer.json takes 2 MB
_PLAIN = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,199}')
_OLD = b'\x80'  # begins files of torch before 1.6, which cannot be mapped
_REASON = 'WeightsUnpickler error: '  # after how to trust a file all the same


def find_small(directory: str, name: str) -> str | None:
  """Finds a file like `find`; raises errors.UserError if it is too large."""
  path = find(directory, name)
  if path and os.path.getsize(path) > _MAX_SMALL:
    raise errors.UserError(
      f'{path} takes {os.path.getsize(path):,} bytes, at most {_MAX_SMALL:,} '
      'are read; it is not a file of a BERT.'
    )
  return path


def find(directory: str, name: str) -> str | None:
  """Returns the real path of a file of a folder, None if it does not exist.

  A link may point to another file of the folder. In a snapshot of Hugging
  Face's cache, .../snapshots/REVISION, it may also point to .../blobs/HASH.

  Any other link is refused, without opening its target, and so is what is not a
  regular file and might never end.
  """
  path = os.path.join(directory, name)
  if not os.path.lexists(path):
    return None
  folder, real = os.path.realpath(directory), os.path.realpath(path)
  allowed = [folder]
  snapshots, _ = os.path.split(folder)
  if os.path.basename(snapshots) == 'snapshots':
    allowed.append(os.path.join(os.path.dirname(snapshots), 'blobs'))
  if os.path.dirname(real) not in allowed:
    raise errors.UserError(
      f'{path} is a link that leads out of the folder, to {real!r}; if that is '
      f'what you want, copy the folder with cp -rL {directory} NEW and name '
      'the copy.'
    )
  if not os.path.isfile(real):
    raise errors.UserError(f'{path} is not a regular file; copy it again.')
  return real


def read_shards(
  directory: str, index: str, read: Callable[[str], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
  """Reads the tensors of all files that an index lists, by `read(path)`.

  The index is a file of the folder, such as model.safetensors.index.json. No
  file outside the folder is opened, and each must have exactly the tensors that
  are listed.
  """
  path = os.path.join(directory, index)
  weight_map = files.read_json(find_small(directory, index)).get('weight_map')
  if not isinstance(weight_map, dict) or not weight_map:
    raise errors.UserError(
      f'{path} has no weight_map of tensors to files; copy it again.'
    )
  named = collections.defaultdict(set)
  for tensor, file in weight_map.items():
    if not isinstance(file, str) or not _PLAIN.fullmatch(file):
      raise errors.UserError(
        f'{path} names the file {reprlib.repr(file)}; only plain names of '
        'files of its own folder are read.'
      )
    named[file].add(tensor)
  tensors = {}
  for file, wanted in named.items():
    real = find(directory, file)
    held = read(real) if real else {}
    differ = sorted(map(reprlib.repr, wanted ^ held.keys()))
    if differ:
      what = 'is not what' if real else 'is missing, while'
      raise errors.UserError(
        f'{os.path.join(directory, file)} {what} {index} lists: it differs in '
        f'{errors.listing(differ)}; copy all files of the model again.'
      )
    tensors |= held
  return tensors


def read_safetensors(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a local file; bfloat16 is converted to float32.

  The library checks the header: dtypes, shapes, and that the tensors fill the
  rest of the file without gaps.
  """
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


def read_torch(path: str) -> dict[str, np.ndarray]:
  """Reads pytorch_model.bin, which torch.save wrote; bfloat16 becomes float32.

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
