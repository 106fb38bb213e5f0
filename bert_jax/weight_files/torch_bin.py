"""Reads pytorch_model.bin, a file of torch.save, without running code from it.

Since torch 1.6 it is a zip of uncompressed members: ROOT/data.pkl, a pickle of
names and tensors, and ROOT/data/KEY, the numbers of each storage. Before, it
was five pickles (the fourth has names and tensors, the fifth the keys of the
storages), then for each storage its size as int64 and its numbers. See
torch/serialization.py. The pickles are interpreted by `torch_pickle`.
"""

import io
import math
import reprlib
import struct
import zipfile

import numpy as np

from bert_jax import errors
from bert_jax.weight_files import pickle_machine, raw_numbers, torch_pickle

_ZIP = b'PK\3\4'
_MAX_DIRECTORY = 1 << 20  # bytes; BERT-large's takes 26 kB
_HEADER = 30  # bytes, before a member's name
_LEGACY = 0x1950A86A20F9469CFC6C, 1001  # magic number and protocol version
_MAX_SHARING = 4  # maximum of numbers in tensors per stored number
_COPY = 'copy it again.'


def read(path: str) -> dict[str, np.ndarray]:
  """Reads the tensors of a state dict that torch.save wrote.

  Args:
    path: local file, of any version of torch since 0.4.

  Returns:
    {name: array}; arrays may share memory, for tied parameters. bfloat16 is
    converted to float32.

  Raises:
    errors.UserError: if the file cannot be read, is malformed or contains
      anything but tensors.
  """
  try:
    with open(path, 'rb') as f:
      magic = f.read(len(_ZIP))
      return _read_zip(f) if magic == _ZIP else _read_legacy(f)
  except OSError as error:
    raise errors.UserError(f'cannot read {path}: {error.strerror}.') from error
  except errors.UserError as error:
    raise errors.UserError(f'{path}: {error}') from error


def _read_zip(f):
  members = _members(f)

  def content(name, most):
    start, size, crc = members[name]
    if size > most:
      raise errors.UserError(
        f'its {reprlib.repr(name)} takes {size:,} bytes, at most {most:,} are '
        'read; it is not a BERT.'
      )
    return raw_numbers.read(f, start, size, np.uint8, crc=crc).tobytes()

  pickles = [
    n for n in members if n.endswith('/data.pkl') and n.count('/') == 1
  ]
  if len(pickles) != 1:
    raise errors.UserError(
      f'it is a zip with {len(pickles)} data.pkl in its top folder, torch.save '
      'writes one; name a file of torch.save.'
    )
  root = pickles[0].removesuffix('data.pkl')
  order = b'little'
  if root + 'byteorder' in members:
    order = content(root + 'byteorder', most=16)
  if order not in (b'little', b'big'):
    raise errors.UserError(f'its byteorder is {order}, not little or big.')
  value, _, storages = torch_pickle.load(
    content(pickles[0], pickle_machine.MAX_BYTES)
  )

  def numbers(storage):
    name = f'{root}data/{storage.key}'
    start, size, crc = members.get(name, (0, -1, 0))
    wanted = storage.size * storage.dtype.itemsize
    if size != wanted:
      got = 'is missing' if size < 0 else f'takes {size:,} bytes'
      raise errors.UserError(
        f'its {reprlib.repr(name)} {got}, its pickle expects '
        f'{reprlib.repr(wanted)}; {_COPY}'
      )
    return raw_numbers.read(
      f, start, storage.size, storage.dtype, order.decode(), crc
    )

  return _arrays(value, storages, numbers)


class _ShortReads:
  """A file that limits each read by zipfile to the size of a directory."""

  def __init__(self, f):
    self._f, self.seek, self.tell = f, f.seek, f.tell

  def read(self, n=-1):
    data = self._f.read(n if 0 <= n <= _MAX_DIRECTORY else _MAX_DIRECTORY + 1)
    if len(data) > _MAX_DIRECTORY:
      raise errors.UserError(
        f'its list of members takes more than {_MAX_DIRECTORY:,} bytes; it is '
        'not a BERT.'
      )
    return data


def _members(f):
  """Returns {member of a zip: (first byte, bytes, CRC-32) in the file}."""
  try:
    with zipfile.ZipFile(_ShortReads(f)) as z:
      infos = sorted(z.infolist(), key=lambda info: info.header_offset)
  except errors.UserError:
    raise
  except (
    zipfile.BadZipFile,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
    struct.error,
  ) as error:
    raise errors.UserError(
      f'it is cut short or damaged ({errors.first_line(error)}); {_COPY}'
    ) from error
  file_size, end, members = f.seek(0, io.SEEK_END), 0, {}
  for info in infos:
    name, shown = info.filename, reprlib.repr(info.filename)
    if info.compress_type or info.compress_size != info.file_size:
      raise errors.UserError(
        f'its member {shown} is compressed, torch.save stores members as they '
        'are; save it again with torch.save.'
      )
    if not end <= info.header_offset <= file_size:
      raise errors.UserError(f'its member {shown} overlaps another; {_COPY}')
    f.seek(info.header_offset)
    header = f.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(_ZIP):
      raise errors.UserError(f'its member {shown} is not there; {_COPY}')
    # The lengths of the name and of the extra field in the local header may
    # differ from those in the list of members.
    start = (
      info.header_offset + _HEADER + sum(struct.unpack('<HH', header[26:]))
    )
    end = start + info.file_size
    if end > file_size or name in members:
      fault = 'is there twice' if name in members else 'is cut short'
      raise errors.UserError(f'its member {shown} {fault}; {_COPY}')
    members[name] = start, info.file_size, info.CRC
  return members


def _read_legacy(f):
  f.seek(0)
  head = f.read(pickle_machine.MAX_BYTES)
  magic, end, _ = torch_pickle.load(head)
  version, end, _ = torch_pickle.load(head, end)
  machine, end, _ = torch_pickle.load(head, end)
  if (magic, version) != _LEGACY or type(machine) is not dict:
    raise errors.UserError(
      'it is not a file of torch.save, which begins with PK or with its magic '
      'number.'
    )
  if machine.get('little_endian') is not True:
    raise errors.UserError(
      'it was written by an old torch on a big-endian machine; save it again '
      'with a torch from 1.6 on.'
    )
  value, end, storages = torch_pickle.load(head, end)
  keys, end, _ = torch_pickle.load(head, end)
  known = type(keys) is list and all(type(key) is str for key in keys)
  if not known or sorted(keys) != sorted(storages):
    raise errors.UserError(
      f'its list of storages is not that of its tensors; {_COPY}'
    )
  starts = {}
  for key in keys:
    (size,) = raw_numbers.read(f, end, 1, np.int64)
    if size != storages[key].size:
      raise errors.UserError(
        f'its storage {reprlib.repr(key)} has {size} numbers, its pickle '
        f'expects {reprlib.repr(storages[key].size)}; {_COPY}'
      )
    starts[key] = end + 8
    end = starts[key] + int(size) * storages[key].dtype.itemsize
  return _arrays(
    value,
    storages,
    lambda s: raw_numbers.read(f, starts[s.key], s.size, s.dtype),
  )


def _arrays(tensors, storages, numbers):
  """Returns {name: array}, views of storages that `numbers` reads."""
  if type(tensors) is not dict or not tensors:
    raise errors.UserError(
      'it holds no state dict: save model.state_dict() with torch.save.'
    )
  for name, tensor in tensors.items():
    if type(tensor) is not torch_pickle.Tensor:
      raise errors.UserError(
        f'its entry {reprlib.repr(name)} is no tensor; save '
        'model.state_dict() alone with torch.save.'
      )
  stored = sum(storage.size for storage in storages.values())
  used = sum(math.prod(t.shape) for t in tensors.values())
  if used > _MAX_SHARING * stored:
    raise errors.UserError(
      f'its tensors have {used:,} numbers, but only {stored:,} are stored; no '
      'BERT shares as many.'
    )
  rows = {key: numbers(storage) for key, storage in storages.items()}
  return {
    name: _view(rows[tensor.storage.key], tensor)
    for name, tensor in tensors.items()
  }


def _view(row, tensor):
  # The stride of an axis of length 1 is meaningless and may have any value.
  strides = [
    stride * row.itemsize if n > 1 else 0
    for n, stride in zip(tensor.shape, tensor.strides, strict=True)
  ]
  return np.ndarray(
    tensor.shape, row.dtype, row, tensor.offset * row.itemsize, strides
  )
