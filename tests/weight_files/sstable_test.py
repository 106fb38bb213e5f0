"""Tables of sorted keys."""

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


def flip(at):
  def change(data):
    data[at] ^= 1
    return data

  return change


def test_checksum_is_the_masked_crc32c():
  # RFC 3720 gives e3069283 for these digits; turned by 15 bits that is 2507c60d,
  # and LevelDB adds a282ead8.
  assert sstable.compute_checksum(b'1234', b'56789') == 0x2507C60D + 0xA282EAD8


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


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (flip(0), 'checksum of its block at byte 0 '),
    (flip(28), 'checksum of its block at byte 28 '),
    (flip(41), 'checksum of its block at byte 41 '),
    (flip(-1), 'does not end as a table does'),
    (flip(FOOTER_START), 'checksum of its block at byte 29 '),
    (lambda data: data[-47:], 'does not end as a table does'),
    (lambda data: data[-48:], 'is beyond its end'),
    (
      lambda data: data[:-48] + b'\xff' * 40 + data[-8:],
      'a number that is cut short or too long',
    ),
    (
      lambda data: data[:-48] + b'\0' * 40 + data[-8:],
      'checksum of its block at byte 0 ',
    ),
  ],
)
def test_damage_is_one_clear_error(path, change, message):
  edit(path, change)
  with pytest.raises(errors.UserError, match=message) as error:
    sstable.read(path)
  assert path in str(error.value) and '\n' not in str(error.value)


def test_any_cut_and_any_flipped_bit_is_an_error(path):
  data = pathlib.Path(path).read_bytes()
  padding = range(FOOTER_START + 4, FOOTER_START + 40)
  for i in range(len(data)):
    edit(path, lambda _, i=i: data[:i])
    with pytest.raises(errors.UserError):
      sstable.read(path)
    if i not in padding:
      edit(path, lambda _, i=i: data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :])
      with pytest.raises(errors.UserError):
        sstable.read(path)


def blocks(*contents, kind=0):
  """Returns a file of data blocks, for which all checksums are right."""
  data, index = b'', []
  for key, content in contents:
    index.append((key, bytes([len(data), len(content)])))
    data += content + bytes([kind])
    data += sstable.compute_checksum(data[-len(content) - 1 :]).to_bytes(
      4, 'little'
    )
  return data, index


def write_blocks(path, data, index):
  with open(path, 'wb') as f:
    f.write(data)
    tf_files.write_end(f, index)


@pytest.mark.parametrize(
  ('contents', 'kind', 'message'),
  [
    ([(b'z', BLOCK)], 1, r'is compressed \(Snappy\)'),
    ([(b'z', BLOCK)], 7, r'is compressed \(method 7\)'),
    ([(b'z', b'\0\0')], 0, 'list of restarts'),
    ([(b'z', META[:4] + b'\xff\xff\xff\xff')], 0, 'list of restarts'),
    ([(b'z', b'\5\1\1ab' + META)], 0, 'an entry does not fit'),
    ([(b'z', b'\0\x7f\1ab' + META)], 0, 'an entry does not fit'),
    ([(b'z', b'\0\1\x7fab' + META)], 0, 'an entry does not fit'),
    ([(b'z', b'\0\1\xff\xff\xff\xff\x7fab' + META)], 0, 'an entry does not'),
  ],
)
def test_blocks_that_cannot_be_are_refused(path, contents, kind, message):
  data, index = blocks(*contents, kind=kind)
  write_blocks(path, data, index)
  with pytest.raises(errors.UserError, match=message):
    sstable.read(path)


def test_blocks_that_are_named_twice_are_refused(path):
  data, [(_, handle)] = blocks((b'z', META))
  write_blocks(path, data, [(b'z', handle), (b'zz', handle)])
  with pytest.raises(errors.UserError, match='blocks overlap at byte 0'):
    sstable.read(path)


def test_what_is_too_large_is_refused_unread(path):
  with open(path, 'r+b') as f:
    f.truncate(1 << 40)  # sparse: takes no room
  with pytest.raises(errors.UserError, match='1,099,511,627,776 bytes'):
    sstable.read(path)
  with pytest.raises(errors.UserError, match='No such file'):
    sstable.read(path + 'x')


def test_too_many_entries_and_too_long_keys_are_refused(path, monkeypatch):
  monkeypatch.setattr(sstable, '_MAX_ENTRIES', 2)
  with pytest.raises(errors.UserError, match='more than 2 entries'):
    sstable.read(path)
  tf_files.write_table(path, [(b'k' * 1025, b'')])
  with pytest.raises(errors.UserError, match='does not fit'):
    sstable.read(path)
