"""Reads pytorch_model.bin, a file of torch.save, without running code from it.

Since torch 1.6 it is a zip of uncompressed members: ROOT/data.pkl, a pickle of
names and tensors, and ROOT/data/KEY, the numbers of each storage. Before, it
was five pickles (the fourth has names and tensors, the fifth the keys of the
storages), then for each storage its size as int64 and its numbers. See
torch/serialization.py.
"""

import math
import os
import reprlib
import sys

import ml_dtypes
import numpy as np

from bert_jax import errors
from bert_jax.weight_files import local_files, stored_zip, torch_pickle

_ZIP = b'PK\3\4'
_LEGACY = 0x1950A86A20F9469CFC6C, 1001  # magic number and protocol version
_MAX_SHARING = 4  # maximum of numbers in tensors per stored number


def read(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a state dict that torch.save wrote.

  Any version of torch since 0.4 may have written them. Arrays may share memory,
  for tied parameters, and must not be changed. bfloat16 becomes float32.
  """
  with errors.explaining(f'cannot read {path}'), errors.within(path):
    local_files.check_memory(path)
    with open(path, 'rb') as f:
      if f.read(len(_ZIP)) != _ZIP:
        f.seek(0)
        return _read_legacy(f)
    with stored_zip.open_stored(path) as archive:
      return _read_zip(archive)


def _read_zip(archive):
  def read_member(name, most):
    size = archive.getinfo(name).file_size
    if size > most:
      raise errors.UserError(
        f'its {reprlib.repr(name)} takes {size:,} bytes, at most {most:,} are '
        'read; it is not a BERT.'
      )
    return archive.read(name)

  names = set(archive.namelist())
  pickles = [n for n in names if n.endswith('/data.pkl') and n.count('/') == 1]
  if len(pickles) != 1:
    raise errors.UserError(
      f'it is a zip with {len(pickles)} data.pkl in its top folder, torch.save '
      'writes one; name a file of torch.save.'
    )
  root = pickles[0].removesuffix('data.pkl')
  order = b'little'
  if root + 'byteorder' in names:
    order = read_member(root + 'byteorder', most=16)
  if order not in (b'little', b'big'):
    raise errors.UserError(f'its byteorder is {order}, not little or big.')
  data = read_member(pickles[0], torch_pickle.MAX_BYTES)
  value, _, storages = torch_pickle.load(data)
  _check_tensors(value, storages)
  rows = {}
  for key, storage in storages.items():
    name, wanted = f'{root}data/{key}', storage.size * storage.dtype.itemsize
    size = archive.getinfo(name).file_size if name in names else 0
    if size != wanted:
      raise errors.UserError(
        f'its {reprlib.repr(name)} takes {size:,} bytes, its pickle expects '
        f'{reprlib.repr(wanted)}; copy it again.'
      )
    rows[key] = _decode(archive.read(name), storage.dtype, order.decode())
  return _view(value, rows)


def _read_legacy(f):
  head, end, parts, storages = f.read(torch_pickle.MAX_BYTES), 0, [], {}
  for _ in range(5):
    part, end, found = torch_pickle.load(head, end)
    parts.append(part)
    storages |= found
  magic, version, machine, value, keys = parts
  if (magic, version) != _LEGACY or not isinstance(machine, dict):
    raise errors.UserError(
      'it is not a file of torch.save, which begins with PK or with its magic '
      'number.'
    )
  if machine.get('little_endian') is not True:
    raise errors.UserError(
      'it was written by an old torch on a big-endian machine; save it again '
      'with a torch from 1.6 on.'
    )
  known = type(keys) is list and all(type(key) is str for key in keys)
  if not known or sorted(keys) != sorted(storages):
    raise errors.UserError(
      'its list of storages differs from its tensors; copy it again.'
    )
  _check_tensors(value, storages)
  rows, left = {}, os.fstat(f.fileno()).st_size - end
  f.seek(end)
  for key in keys:
    storage = storages[key]
    wanted = storage.size * storage.dtype.itemsize
    size = int.from_bytes(f.read(8), 'little', signed=True)
    left -= 8 + wanted
    if size != storage.size or left < 0:
      raise errors.UserError(
        f'its storage {reprlib.repr(key)} has {size} numbers or is cut short, '
        f'its pickle expects {reprlib.repr(storage.size)}; copy it again.'
      )
    rows[key] = _decode(f.read(wanted), storage.dtype)
  return _view(value, rows)


def _decode(data: bytes, dtype: np.dtype, order: str = 'little') -> np.ndarray:
  """Returns numbers in the machine's byte order, bfloat16 as float32."""
  # As unsigned integers: ml_dtypes 0.5 does not swap the bytes of bfloat16.
  numbers = np.frombuffer(data, f'u{dtype.itemsize}')
  if order != sys.byteorder:
    numbers = numbers.byteswap()
  numbers = numbers.view(dtype)
  return numbers.astype(np.float32) if dtype == ml_dtypes.bfloat16 else numbers


def _check_tensors(tensors, storages):
  """Raises errors.UserError unless a value is a state dict."""
  if not isinstance(tensors, dict) or not tensors:
    raise errors.UserError(
      'it does not hold a state dict: save model.state_dict() with torch.save.'
    )
  for name, tensor in tensors.items():
    if type(tensor) is not torch_pickle.Tensor:
      raise errors.UserError(
        f'its entry {reprlib.repr(name)} is not a tensor; save '
        'model.state_dict() alone with torch.save.'
      )
  stored = sum(storage.size for storage in storages.values())
  used = sum(math.prod(tensor.shape) for tensor in tensors.values())
  if used > _MAX_SHARING * stored:
    raise errors.UserError(
      f'its tensors have {used:,} numbers, but only {stored:,} are stored; no '
      'BERT shares as many.'
    )


def _view(tensors, rows) -> dict[str, np.ndarray]:
  """Returns {name: array}, views of the numbers of each storage."""
  found = {}
  for name, tensor in tensors.items():
    row = rows[tensor.storage.key]
    # The stride of an axis of length 1 is meaningless and may have any value.
    strides = [
      stride * row.itemsize if n > 1 else 0
      for n, stride in zip(tensor.shape, tensor.strides, strict=True)
    ]
    offset = tensor.offset * row.itemsize
    found[name] = np.ndarray(tensor.shape, row.dtype, row, offset, strides)
  return found
