"""Tables of sorted keys; Protocol Buffers, by the examples of protobuf.dev."""

import pathlib

import pytest

from bert_jax import errors
from bert_jax.weight_files import sstable
from tests.weight_files import tf_files

ENTRIES = [(b'', b'x'), (b'ab', b'1'), (b'ac', b'2')]
# shared, own, size, the key's own bytes, the value; then where whole keys are.
BLOCK = b'\0\0\1x' + b'\0\2\1ab1' + b'\1\1\1c2' + b'\0\0\0\0' + b'\1\0\0\0'
META = b'\0\0\0\0' + b'\1\0\0\0'
# The data block is at 0; its index key is the next letter after the last key.
INDEX = b'\0\1\2b' + b'\0\x17' + b'\0\0\0\0' + b'\1\0\0\0'
FOOTER_START = 23 + 5 + 8 + 5 + 14 + 5


@pytest.fixture
def path(tmp_path):
  path = str(tmp_path / 'x.index')
  tf_files.write_table(path, ENTRIES)
  return path


def edit(path, change):
  data = bytearray(pathlib.Path(path).read_bytes())
  data = change(data)
  pathlib.Path(path).write_bytes(data)


def test_checksum_is_the_masked_crc32c():
  # RFC 3720 gives e3069283 for these digits; turned by 15 bits that is 2507c60d,
  # and LevelDB adds a282ead8.
  assert sstable.compute_checksum(b'123456789') == 0x2507C60D + 0xA282EAD8


def test_bytes_are_those_of_the_format(path):
  data = pathlib.Path(path).read_bytes()
  assert len(BLOCK) == 23 and data[:23] == BLOCK
  assert data[23:24] == b'\0'  # not compressed
  assert data[28:36] == META
  assert data[41:55] == INDEX
  # Where the metaindex and the index are, filled with zeros, and the magic.
  footer = bytes([28, 8, 41, 14]).ljust(40, b'\0')
  assert data[FOOTER_START:] == footer + bytes.fromhex('57fb808b247547db')


def test_many_blocks_are_read_back(tmp_path):
  entries = [(f'layer_{i:03d}'.encode(), bytes([i]) * i) for i in range(100)]
  path = str(tmp_path / 'x')
  tf_files.write_table(path, entries, block=300)
  assert sstable.read(path) == entries
  tf_files.write_table(path, [])
  assert sstable.read(path) == []


def test_any_cut_and_any_flipped_bit_is_an_error(path):
  data = pathlib.Path(path).read_bytes()
  padding = range(FOOTER_START + 4, FOOTER_START + 40)
  for i in range(len(data)):
    edit(path, lambda _, i=i: data[:i])
    with pytest.raises(errors.UserError, match='copy it again'):
      sstable.read(path)
    if i not in padding:
      edit(path, lambda _, i=i: data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :])
      with pytest.raises(errors.UserError):
        sstable.read(path)


def test_numbers_are_those_of_the_documentation():
  assert sstable.read_varint(bytes.fromhex('ff9601'), 1) == (150, 3)
  assert sstable.encode_varint(150) == bytes.fromhex('9601')
  for value in (0, 127, 128, 1 << 32, (1 << 64) - 1):
    written = sstable.encode_varint(value)
    assert sstable.read_varint(written, 0) == (value, len(written))


def test_messages_are_those_of_the_documentation():
  message = bytes.fromhex(
    '089601  12 07 74 65 73 74 69 6e 67  35 4b 43 25 a4  39 0100000000000000'
  )
  assert list(sstable.read_fields(message)) == [
    (1, 150),
    (2, b'testing'),
    (6, 0xA425434B),
    (7, 1),
  ]


@pytest.mark.parametrize(
  ('message', 'problem'),
  [
    ('08', 'cut short or too long'),
    ('08 80', 'cut short or too long'),
    ('08' + 'ff' * 10, 'cut short or too long'),
    ('12 03 61 62', 'field 2 of kind 2 is cut short'),
    ('35 00 00 00', 'field 6 of kind 5'),
    ('0b', 'kind 3 is cut short'),
  ],
)
def test_what_cannot_be_is_a_value_error(message, problem):
  with pytest.raises(ValueError, match=problem):
    list(sstable.read_fields(bytes.fromhex(message)))
