"""Reads tables of sorted keys in LevelDB's and TensorFlow's format.

A file has data blocks, an empty metaindex block, an index block with the
positions of the data blocks, and a footer with the positions of the last two.
Each block is followed by a byte for its compression and a checksum.

https://github.com/google/leveldb/blob/main/doc/table_format.md
"""

from collections.abc import Iterator

import google_crc32c

from bert_jax import errors
from bert_jax.weight_files import protobuf

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, 'little')
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes: compression and checksum
_MAX_FILE = 16 << 20  # bytes; BERT-large with Adam's slots takes 54 kB


def compute_checksum(data: bytes) -> int:
  """Returns the masked CRC-32C of bytes (LevelDB's util/crc32c.h)."""
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read(path: str) -> list[tuple[bytes, bytes]]:
  """Reads all (key, value) entries, sorted by key, and verifies checksums."""
  kinds = OSError, ValueError
  with errors.explaining(f'cannot read {path}', 'copy it again.', kinds):
    with open(path, 'rb') as f:
      data = f.read(_MAX_FILE)
    if not data[_FOOTER - 8 :].endswith(_MAGIC):
      raise ValueError('it does not end as a table does')
    meta, at = _read_handle(data, len(data) - _FOOTER)
    index, _ = _read_handle(data, at)
    list(_list_entries(data, meta))  # to verify it
    blocks = [_read_handle(x, 0)[0] for _, x in _list_entries(data, index)]
    return [entry for block in blocks for entry in _list_entries(data, block)]


def _read_handle(data, at) -> tuple[tuple[int, int], int]:
  """Returns the (offset, size) of a block, and the index after it."""
  offset, at = protobuf.read_varint(data, at)
  size, at = protobuf.read_varint(data, at)
  return (offset, size), at


def _list_entries(data, handle) -> Iterator[tuple[bytes, bytes]]:
  """Yields the entries of a block, whose keys are prefix-compressed."""
  offset, size = handle
  stop = offset + size
  crc = int.from_bytes(data[stop + 1 : stop + _TRAILER], 'little')
  if compute_checksum(data[offset : stop + 1]) != crc:
    raise ValueError(f'the checksum of its block at byte {offset} is wrong')
  if data[stop]:
    raise ValueError(f'its block at byte {offset} is compressed')
  block = data[offset:stop]
  restarts = int.from_bytes(block[-4:], 'little')
  end = len(block) - 4 * (restarts + 1)
  at, key = 0, b''
  while at < end:
    shared, at = protobuf.read_varint(block, at)
    own, at = protobuf.read_varint(block, at)
    size, at = protobuf.read_varint(block, at)
    key = key[:shared] + block[at : at + own]
    at += own + size
    yield key, block[at - size : at]
