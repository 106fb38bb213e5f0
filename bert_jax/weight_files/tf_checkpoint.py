"""Reads TensorFlow V2 checkpoints: PREFIX.index, PREFIX.data-*.

The index is a table with a message for each tensor's name: type, shape, data
file, position in it, and checksum.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto
"""

import math
from typing import NamedTuple

import ml_dtypes
import numpy as np

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.weight_files import sstable

# The values of TensorFlow's DataType that occur in BERT's files.
_DTYPES = {
  1: np.dtype('<f4'),
  2: np.dtype('<f8'),
  3: np.dtype('<i4'),
  9: np.dtype('<i8'),
  14: np.dtype(ml_dtypes.bfloat16),
  19: np.dtype('<f2'),
}


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
  """Returns {name of a tensor: its entry}; its data files may be missing."""
  path = f'{prefix}.index'
  table = dict(sstable.read(path))
  what = f'{path} is not the index of a TensorFlow checkpoint'
  odd = KeyError, TypeError, ValueError
  with errors.explaining(what, 'copy it again.', odd):
    header = dict(sstable.read_fields(table.pop(b'')))  # BundleHeaderProto
    if header.get(2, 0):
      raise ValueError('its numbers are big-endian')
    # Keys that begin with 0 are of slices of partitioned tensors.
    names = {x: x.decode() for x in table if not x.startswith(b'\0')}
    return {
      name: _read_entry(name, table[key], prefix, header[1])
      for key, name in names.items()
    }


def _read_entry(name, message, prefix, shards) -> Entry:
  """Returns the Entry of a BundleEntryProto."""
  fields = dict(sstable.read_fields(message))
  shape = tuple(
    dict(sstable.read_fields(dim)).get(1, 0)
    for number, dim in sstable.read_fields(fields.get(2, b''))
    if number == 2  # Dim, whose field 1 is the size
  )
  dtype, shard, offset, size, crc = (fields.get(k, 0) for k in (1, 3, 4, 5, 6))
  path = f'{prefix}.data-{shard:05d}-of-{shards:05d}'
  return Entry(name, dtype, shape, path, offset, size, crc, 7 in fields)


def read(entry: Entry) -> np.ndarray:
  """Reads a tensor and verifies its checksum."""
  name, path, dtype = entry.name, entry.path, _DTYPES.get(entry.dtype)
  if entry.partitioned or not dtype or not entry.size:
    raise errors.UserError(
      f"{path}: {name} is stored in slices, empty or of TensorFlow's type "
      f'{entry.dtype}; only whole tensors of numbers can be read. Save it again '
      'with tf.train.Saver.'
    )
  advice = 'a checkpoint needs it beside its .index.'
  with (
    errors.explaining(f'cannot read {path}', advice),
    storage.open_binary(path) as f,
  ):
    f.seek(entry.offset)
    data = f.read(math.prod(entry.shape) * dtype.itemsize)
  if len(data) != entry.size or sstable.compute_checksum(data) != entry.crc:
    raise errors.UserError(
      f'{path}: the checksum of {name} is wrong; copy it again.'
    )
  return np.frombuffer(data, dtype).reshape(entry.shape)
