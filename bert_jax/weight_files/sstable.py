"""Reads tables of sorted keys in LevelDB's and TensorFlow's format.

A file has data blocks, an empty metaindex block, an index block with the
positions of the data blocks, and a footer with the positions of the last two.
Each block is followed by a byte for its compression and a checksum.

https://github.com/google/leveldb/blob/main/doc/table_format.md
"""

import os

import google_crc32c

from bert_jax import errors
from bert_jax.weight_files import protobuf

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, 'little')
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes: compression and checksum

# Limits for reading. BERT-large with Adam's slots has 1,200 entries and takes
# 54 kB.
_MAX_FILE = 16 << 20  # bytes
_MAX_ENTRIES = 100_000
_MAX_KEY = 1024  # bytes


def compute_checksum(*parts: bytes) -> int:
  """Returns the masked CRC-32C of bytes (LevelDB's util/crc32c.h)."""
  crc = 0
  for part in parts:
    crc = google_crc32c.extend(crc, part)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read(path: str) -> list[tuple[bytes, bytes]]:
  """Reads all (key, value) entries, sorted by key, and verifies checksums."""
  with errors.explaining(f'cannot read {path}'), open(path, 'rb') as f:
    size = os.fstat(f.fileno()).st_size
    if size > _MAX_FILE:
      raise errors.UserError(
        f'{path} has {size:,} bytes, the table of a BERT at most '
        f'{_MAX_FILE:,}; name a .index file of a checkpoint.'
      )
    data = f.read()
  what = f'{path} is damaged or not a table'
  with errors.explaining(what, 'copy it again.', ValueError):
    return _parse(data)


def _parse(data):
  footer = data[-_FOOTER:]
  if len(footer) < _FOOTER or not footer.endswith(_MAGIC):
    raise ValueError('it does not end as a table does')
  meta, at = _handle(footer, 0)
  index, _ = _handle(footer, at)
  _block(data, meta)
  handles, found, end = [], [], 0
  _add_entries(_block(data, index), handles)
  for _, value in handles:
    (start, size), _ = _handle(value, 0)
    if start < end:  # else a small file could have any number of entries
      raise ValueError(f'its blocks overlap at byte {start}')
    end = start + size + _TRAILER
    _add_entries(_block(data, (start, size)), found)
  return found


def _handle(data, at):
  """Decodes a block handle, two varints; returns ((offset, size), end)."""
  offset, at = protobuf.read_varint(data, at)
  size, at = protobuf.read_varint(data, at)
  return (offset, size), at


def _block(data, handle):
  """Returns the content of a block; raises ValueError for a wrong checksum."""
  offset, size = handle
  end = offset + size
  if end + _TRAILER > len(data) - _FOOTER:
    raise ValueError(f'a block of {size} bytes at {offset} is beyond its end')
  crc = int.from_bytes(data[end + 1 : end + _TRAILER], 'little')
  if compute_checksum(data[offset : end + 1]) != crc:
    raise ValueError(f'the checksum of its block at byte {offset} is wrong')
  if data[end]:
    name = 'Snappy' if data[end] == 1 else f'method {data[end]}'
    raise ValueError(
      f'its block at byte {offset} is compressed ({name}), as no checkpoint '
      'of TensorFlow is'
    )
  return data[offset:end]


def _add_entries(block, found):
  """Appends the entries of a block, whose keys are prefix-compressed."""
  restarts = int.from_bytes(block[-4:], 'little')
  end = len(block) - 4 * (restarts + 1)
  if len(block) < 4 or end < 0:
    raise ValueError('a block is shorter than its list of restarts')
  at, key = 0, b''
  while at < end:
    shared, at = protobuf.read_varint(block, at)
    own, at = protobuf.read_varint(block, at)
    size, at = protobuf.read_varint(block, at)
    if shared > len(key) or shared + own > _MAX_KEY or at + own + size > end:
      raise ValueError('an entry does not fit its block')
    if len(found) == _MAX_ENTRIES:
      raise ValueError(f'it has more than {_MAX_ENTRIES:,} entries')
    key = key[:shared] + block[at : at + own]
    at += own + size
    found.append((key, block[at - size : at]))
