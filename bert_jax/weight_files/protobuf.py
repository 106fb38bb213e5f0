"""Protocol Buffers, as far as TensorFlow checkpoints and event files need them.

https://protobuf.dev/programming-guides/encoding
`google.protobuf` could not read the tables of `sstable.py`, which have varints
outside of messages.
"""

from collections.abc import Iterator

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
