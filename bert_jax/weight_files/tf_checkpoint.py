"""Reads TensorFlow V2 checkpoints: PREFIX.index, PREFIX.data-*.

The index is a table with a message for each tensor's name: type, shape, data
file, position in it, and checksum.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto
"""

import itertools
import math
import os
from typing import NamedTuple

import ml_dtypes
import numpy as np

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.weight_files import protobuf, sstable

# The values of TensorFlow's DataType that occur in BERT's files.
_DTYPES = {
  1: np.dtype('<f4'),
  2: np.dtype('<f8'),
  3: np.dtype('<i4'),
  9: np.dtype('<i8'),
  14: np.dtype(ml_dtypes.bfloat16),
  19: np.dtype('<f2'),
}
_MAX_RANK = 8


class Entry(NamedTuple):
  """Where a tensor is stored."""

  name: str
  dtype: int  # value of TensorFlow's DataType
  shape: tuple[int, ...]
  path: str  # of the data file
  offset: int  # bytes, in the data file
  size: int  # bytes
  crc: int  # masked CRC-32C of the bytes
  partitioned: bool  # whether it is stored in slices, in other entries


def read_index(prefix: str) -> dict[str, Entry]:
  """Reads the index of a checkpoint; its data files may be missing.

  Returns:
    {name of a tensor: its entry}.
  """
  path = f'{prefix}.index'
  table = dict(sstable.read(path))
  with errors.explaining(
    f'{path} is not the index of a TensorFlow checkpoint',
    'copy it again.',
    ValueError,
  ):
    if b'' not in table:
      raise ValueError('it lacks the header of a checkpoint')
    header = dict(protobuf.read_fields(table.pop(b'')))  # BundleHeaderProto
    shards = _get(header, 1, int)
    if _get(header, 2, int):
      raise ValueError('its numbers are big-endian')
    entries = {}
    for key, value in table.items():
      if key.startswith(b'\0'):  # a slice of a partitioned tensor
        continue
      name = key.decode()
      if not name.isprintable():
        raise ValueError(f'it holds the name {name[:50]!r}')
      entries[name] = _read_entry(name, value, prefix, shards)
    places = sorted(
      (e.path, e.offset, e.offset + e.size)
      for e in entries.values()
      if e.size and not e.partitioned
    )
    for (file, _, end), after in itertools.pairwise(places):
      if after < (file, end):
        raise ValueError(f'two tensors share byte {after[1]}')
  return entries


def _read_entry(name, message, prefix, shards) -> Entry:
  """Returns the Entry of a BundleEntryProto, after checking its values."""
  found = dict(protobuf.read_fields(message))
  shape = tuple(
    _get(dict(protobuf.read_fields(_get({number: dim}, 2, bytes))), 1, int)
    for number, dim in protobuf.read_fields(_get(found, 2, bytes))
    if number == 2  # Dim, whose field 1 is the size
  )
  dtype, shard, offset, size, crc = (
    _get(found, k, int) for k in (1, 3, 4, 5, 6)
  )
  path = _data_path(prefix, shard, shards)
  entry = Entry(name, dtype, shape, path, offset, size, crc, 7 in found)
  if len(shape) > _MAX_RANK or shard >= shards:
    raise ValueError(
      f'{name!r} has {len(shape)} axes and lies in data file {shard} of {shards}'
    )
  if dtype in _DTYPES and not entry.partitioned:
    needs = math.prod(shape) * _DTYPES[dtype].itemsize
    if needs != size:
      raise ValueError(
        f'{name!r} of shape {shape} takes {needs} bytes, it has {size}'
      )
  return entry


def _get(found, field, kind):
  """Returns a field of a message: a number from 0, or bytes."""
  value = found.get(field, kind())
  if not isinstance(value, kind) or kind is int and value >> 63:
    wanted = 'a number from 0' if kind is int else 'a message'
    raise ValueError(f'its field {field} is {value!r}, not {wanted}')
  return value


def read(entry: Entry) -> np.ndarray:
  """Reads a tensor and verifies its checksum."""
  name, path = entry.name, entry.path
  if entry.partitioned or entry.dtype not in _DTYPES or not entry.size:
    raise errors.UserError(
      f"{path}: {name} is stored in slices, empty or of TensorFlow's type "
      f'{entry.dtype}; only whole tensors of numbers can be read. Save it again '
      'with tf.train.Saver.'
    )
  end = entry.offset + entry.size
  advice = 'a checkpoint needs it beside its .index.'
  with (
    errors.explaining(f'cannot read {path}', advice),
    storage.open_binary(path) as f,
  ):
    held = os.fstat(f.fileno()).st_size
    if end > held:
      raise errors.UserError(
        f'{path} has {held:,} bytes, but {name} ends at {end:,}; copy it again.'
      )
    f.seek(entry.offset)
    data = f.read(entry.size)
  if sstable.compute_checksum(data) != entry.crc:
    raise errors.UserError(
      f'{path}: the checksum of {name} is wrong; copy it again.'
    )
  return np.frombuffer(data, _DTYPES[entry.dtype]).reshape(entry.shape)


def _data_path(prefix, shard, shards):
  return f'{prefix}.data-{shard:05d}-of-{shards:05d}'
