"""Reads and writes TensorFlow V2 checkpoints: PREFIX.index, PREFIX.data-*.

The index is a table with a message for each tensor's name: type, shape, data
file, position in it, and checksum.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto
"""

import math
import os
from collections.abc import Mapping
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
_VERSION = 1
_MAX_RANK = 8
_MAX_SHARDS = 10_000


class Entry(NamedTuple):
  """The entry of a tensor in the index.

  Attributes:
    dtype: value of TensorFlow's DataType.
    shape: shape of the tensor.
    shard: number of the data file.
    offset: offset in the data file in bytes.
    size: size in bytes.
    crc: masked CRC-32C of the bytes.
    partitioned: whether the tensor is stored in slices, in other entries.
  """

  dtype: int
  shape: tuple[int, ...]
  shard: int
  offset: int
  size: int
  crc: int
  partitioned: bool


class Bundle(NamedTuple):
  """The content of an index.

  Attributes:
    prefix: path of the checkpoint without .index.
    shards: number of data files.
    entries: {name: Entry}, sorted by name.
  """

  prefix: str
  shards: int
  entries: dict[str, Entry]


def read_index(prefix: str) -> Bundle:
  """Reads the index of a checkpoint; its data files may be missing.

  Raises:
    errors.UserError: if the index is missing, damaged or inconsistent.
  """
  path = f'{prefix}.index'
  table = sstable.read(path)
  try:
    if not table or table[0][0] != b'':
      raise ValueError('it lacks the header of a checkpoint')
    shards = _header(table[0][1])
    entries = {}
    for key, value in table[1:]:
      if key.startswith(b'\0'):  # a slice of a partitioned tensor
        continue
      name = key.decode()
      if not name.isprintable():
        raise ValueError(f'it holds the name {name[:50]!r}')
      try:
        entries[name] = _entry(value, shards)
      except ValueError as error:
        raise ValueError(f'{name!r}: {error}') from error
    _check_overlap(entries)
  except ValueError as error:
    raise errors.UserError(
      f'{path} is not the index of a TensorFlow checkpoint: {error}; copy it '
      'again.'
    ) from error
  return Bundle(prefix, shards, entries)


def _header(message):
  """Returns the number of data files from a BundleHeaderProto."""
  found = dict(protobuf.read_fields(message))
  shards = _number(found, 1)
  if not 1 <= shards <= _MAX_SHARDS:
    raise ValueError(f'it names {shards} data files')
  if _number(found, 2):
    raise ValueError('its numbers are big-endian')
  needs = _number(dict(protobuf.read_fields(_message(found, 3))), 2)
  if needs > _VERSION:
    raise ValueError(f'it needs a reader of version {needs}, not {_VERSION}')
  return shards


def _entry(message, shards):
  """Returns the Entry of a BundleEntryProto, after checking its values."""
  found, partitioned = {}, False
  for number, value in protobuf.read_fields(message):
    found[number] = value
    partitioned |= number == 7
  shape = _shape(_message(found, 2))
  dtype, shard, offset, size, crc = (_number(found, k) for k in (1, 3, 4, 5, 6))
  if shard >= shards:
    raise ValueError(f'it lies in data file {shard} of {shards}')
  if dtype in _DTYPES and not partitioned:
    needs = math.prod(shape) * _DTYPES[dtype].itemsize
    if needs != size:
      raise ValueError(f'shape {shape} takes {needs} bytes, it has {size}')
  return Entry(dtype, shape, shard, offset, size, crc, partitioned)


def _shape(message):
  sizes = []
  for field in protobuf.read_fields(message):
    if field[0] == 2:  # Dim, whose field 1 is the size
      sizes.append(
        _number(dict(protobuf.read_fields(_message(dict([field]), 2))), 1)
      )
  if len(sizes) > _MAX_RANK:
    raise ValueError(f'it has {len(sizes)} axes, at most {_MAX_RANK} can be')
  return tuple(sizes)


def _number(found, field):
  value = found.get(field, 0)
  if not isinstance(value, int) or value >> 63:
    raise ValueError(f'its field {field} is {value!r}, not a number from 0')
  return value


def _message(found, field):
  value = found.get(field, b'')
  if not isinstance(value, bytes):
    raise ValueError(f'its field {field} is {value}, not a message')
  return value


def _check_overlap(entries):
  """Raises ValueError for tensors that share bytes."""
  last = {}
  for name, entry in sorted(
    entries.items(), key=lambda item: (item[1].shard, item[1].offset)
  ):
    if entry.partitioned or not entry.size:
      continue
    before, end = last.get(entry.shard, (None, 0))
    if entry.offset < end:
      raise ValueError(f'{before!r} and {name!r} share bytes')
    last[entry.shard] = name, entry.offset + entry.size


def read(bundle: Bundle, name: str) -> np.ndarray:
  """Reads a tensor and verifies its checksum.

  Raises:
    errors.UserError: if the tensor is damaged or of an unsupported type, or its
      data file is missing or too short.
  """
  entry = bundle.entries[name]
  problem = None
  if entry.partitioned:
    problem = 'stored in slices'
  elif entry.dtype not in _DTYPES:
    problem = f"of TensorFlow's type {entry.dtype}"
  elif not entry.size:
    problem = f'empty, shape {entry.shape}'
  if problem:
    raise errors.UserError(
      f'{bundle.prefix}: {name} is {problem}; only whole tensors of numbers '
      'can be read. Save it again with tf.train.Saver.'
    )
  path = _data_path(bundle.prefix, entry.shard, bundle.shards)
  end = entry.offset + entry.size
  advice = 'a checkpoint needs it beside its .index.'
  with errors.explaining(f'cannot read {path}', advice):
    with storage.open_binary(path) as f:
      held = os.fstat(f.fileno()).st_size
      if end > held:
        raise errors.UserError(
          f'{path} has {held:,} bytes, but {name} ends at {end:,}; copy it '
          'again.'
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


def write(prefix: str, tensors: Mapping[str, np.ndarray]):
  """Writes an index and one data file.

  Args:
    prefix: path without .index, in an existing folder.
    tensors: {name: array}, of types that `read` supports.

  Raises:
    OSError: if they cannot be written.
  """
  numbers = {dtype: number for number, dtype in _DTYPES.items()}
  version = protobuf.encode_number(1, _VERSION)
  header = protobuf.encode_number(1, 1) + protobuf.encode_bytes(3, version)
  table = [(b'', header)]
  with open(_data_path(prefix, 0, 1), 'wb') as f:
    for name in sorted(tensors, key=str.encode):
      value = tensors[name]
      data = value.tobytes()
      shape = b''.join(
        protobuf.encode_bytes(2, protobuf.encode_number(1, size))
        for size in value.shape
      )
      message = (
        protobuf.encode_number(1, numbers[value.dtype])
        + protobuf.encode_bytes(2, shape)
        + protobuf.encode_number(4, f.tell())
        + protobuf.encode_number(5, len(data))
        + protobuf.encode_fixed32(6, sstable.compute_checksum(data))
      )
      table.append((name.encode(), message))
      f.write(data)
  sstable.write(f'{prefix}.index', table)
