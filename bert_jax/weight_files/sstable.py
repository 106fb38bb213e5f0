"""Reads tables of sorted keys in LevelDB's and TensorFlow's format.

And, of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), what
TensorFlow's checkpoints and event files need: `google.protobuf` could not read the
tables, which have varints outside of messages.

A file has data blocks, an empty metaindex block, an index block with the
positions of the data blocks, and a footer with the positions of the last two.
Each block is followed by a byte for its compression and a checksum.

https://github.com/google/leveldb/blob/main/doc/table_format.md
"""

from collections.abc import Iterator

import google_crc32c

from bert_jax import errors

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, 'little')
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes: compression and checksum
_MAX_FILE = 16 << 20  # bytes; BERT-large with Adam's slots takes 54 kB
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 10  # bytes, for 64 bits


def read_varint(data: bytes, start: int) -> tuple[int, int]:
  """Returns a varint of up to 64 bits, and the index after it."""
  value = 0
  for i, byte in enumerate(data[start : start + _MAX_VARINT]):
    value |= (byte & 0x7F) << 7 * i
    if byte < 0x80:
      return value, start + i + 1
  raise ValueError('it holds a number that is cut short or too long')


def encode_varint(value: int) -> bytes:
  """Encodes a number from 0 to 2^64 - 1 as a varint, seven bits per byte."""
  out = bytearray()
  while value >= 0x80:
    out.append(value & 0x7F | 0x80)
    value >>= 7
  out.append(value)
  return bytes(out)


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
  """Yields (number, value) of each field of a message in turn.

  Values are bytes for strings and messages, else unsigned integers.
  """
  at = 0
  while at < len(message):
    tag, at = read_varint(message, at)
    number, kind = tag >> 3, tag & 7
    if kind == _VARINT:
      value, at = read_varint(message, at)
      yield number, value
      continue
    if kind == _BYTES:
      size, at = read_varint(message, at)
    else:
      size = {_FIXED32: 4, _FIXED64: 8}.get(kind, len(message))
    value, at = message[at : at + size], at + size
    if at > len(message):
      raise ValueError(f'its field {number} of kind {kind} is cut short')
    yield number, value if kind == _BYTES else int.from_bytes(value, 'little')


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
  offset, at = read_varint(data, at)
  size, at = read_varint(data, at)
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
    shared, at = read_varint(block, at)
    own, at = read_varint(block, at)
    size, at = read_varint(block, at)
    key = key[:shared] + block[at : at + own]
    at += own + size
    yield key, block[at - size : at]
