"""Damaged and hostile files of torch.save, but for their pickles."""

import os
import struct
import zipfile

import numpy as np
import pytest

from bert_jax.weight_files import torch_bin
from tests.weight_files import torch_files as t
from tests.weight_files.hostile import refusal

SIX = np.arange(6, dtype='<f4').tobytes()
SOUND = t.state_dict(a=t.tensor())
TWO = t.state_dict(a=t.tensor(), b=t.tensor(t.storage('1')))
HEADER = 30 + len('archive/data/0')  # bytes


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'x.bin')


def edit(path, change):
  with open(path, 'rb') as f:
    data = bytearray(f.read())
  with open(path, 'wb') as f:
    f.write(change(data) or data)


@pytest.mark.parametrize('writer', [t.write_zip, t.write_legacy])
def test_cut_short_anywhere(path, writer):
  size = os.path.getsize(writer(path, SOUND, {'0': SIX}))
  for end in range(0, size, 7):
    writer(path, SOUND, {'0': SIX})
    os.truncate(path, end)
    assert path in refusal(torch_bin.read, path)


def test_no_flipped_bit_goes_unnoticed_in_the_numbers(path):
  t.write_zip(path, SOUND, {'0': SIX})

  def flip(data):
    data[data.index(SIX) + 9] ^= 4

  edit(path, flip)
  assert 'CRC' in refusal(torch_bin.read, path)


def test_files_without_crc_are_read(path):
  """As torch.serialization.set_crc32_options(False) writes them."""
  t.write_zip(path, SOUND, {'0': SIX})
  with zipfile.ZipFile(path) as z:
    crcs = [info.CRC for info in z.infolist()]

  def without(data):
    for crc in crcs:
      data = data.replace(struct.pack('<I', crc), bytes(4))
    return data

  edit(path, without)
  assert torch_bin.read(path)['a'].sum() == 15


def test_compressed_bomb(path):
  pickle = t.state_dict(a=t.tensor(t.storage(size=25_000_000)))
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('archive/data.pkl', pickle, zipfile.ZIP_STORED)
    z.writestr('archive/data/0', bytes(100_000_000))
  assert os.path.getsize(path) < 200_000
  assert "'archive/data/0' is compressed" in refusal(torch_bin.read, path)


def test_member_that_claims_to_be_larger_than_the_file(path):
  """A size of 2**32 - 1 bytes, in the list of members."""
  t.write_zip(path, SOUND, {'0': SIX})

  def inflate(data):
    entry = data.rindex(b'PK\1\2')
    data[entry + 20 : entry + 28] = struct.pack('<II', *[2**32 - 2] * 2)

  edit(path, inflate)
  assert "'archive/data/0' is cut short" in refusal(torch_bin.read, path)


def test_overlapping_members(path):
  """So that little data stands for many storages."""
  t.write_zip(path, TWO, {'0': SIX, '1': SIX})

  def overlap(data):
    second = data.rindex(b'PK\1\2')
    first = data.rindex(b'PK\1\2', 0, second)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]

  edit(path, overlap)
  assert 'overlaps another' in refusal(torch_bin.read, path)


def test_member_whose_header_is_gone(path):
  t.write_zip(path, SOUND, {'0': SIX})

  def erase(data):
    data[data.index(SIX) - HEADER] = 0

  edit(path, erase)
  assert "'archive/data/0' is not there" in refusal(torch_bin.read, path)


def test_list_of_members_of_many_megabytes(path):
  t.write_zip(path, SOUND, {'0': SIX})

  def extend(data):
    first, last = data.index(b'PK\1\2'), data.index(b'PK\5\6')
    entries = data[first:last] * 30_000
    data[last + 12 : last + 16] = struct.pack('<I', len(entries))
    return data[:first] + entries + data[last:]

  edit(path, extend)
  assert 'list of members takes more' in refusal(torch_bin.read, path)


@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_members_that_are_missing_double_or_of_a_wrong_size(path):
  t.write_zip(path, SOUND, {})
  assert "'archive/data/0' is missing" in refusal(torch_bin.read, path)
  t.write_zip(path, SOUND, {'0': SIX[:-4]})
  assert 'takes 20 bytes, its pickle expects 24' in refusal(
    torch_bin.read, path
  )
  with zipfile.ZipFile(path, 'a') as z:
    z.writestr('archive/data/0', SIX)
  assert 'is there twice' in refusal(torch_bin.read, path)
  t.write_zip(path, SOUND, {'0': SIX})
  with zipfile.ZipFile(path, 'a') as z:
    z.writestr('other/data.pkl', SOUND)
  assert 'a zip with 2 data.pkl' in refusal(torch_bin.read, path)
  with zipfile.ZipFile(path, 'w') as z:
    z.writestr('a.txt', '')
  assert 'a zip with 0 data.pkl' in refusal(torch_bin.read, path)


def test_byte_orders_and_pickles_that_cannot_be(path):
  t.write_zip(path, SOUND, {'0': SIX}, byteorder='middle')
  assert 'not little or big' in refusal(torch_bin.read, path)
  t.write_zip(path, SOUND, {'0': SIX}, byteorder='little' * 9)
  assert 'at most 16' in refusal(torch_bin.read, path)
  t.write_zip(path, SOUND + bytes(1 << 20), {'0': SIX})
  assert 'at most 1,048,576' in refusal(torch_bin.read, path)


def test_names_with_line_breaks_are_shown_in_one_line(path):
  for content in (b'', SOUND + bytes(1 << 20)):
    with zipfile.ZipFile(path, 'w') as z:
      z.writestr('a\nb/data.pkl', content)
    refusal(torch_bin.read, path)
  key = 'a\nb'
  t.write_zip(path, t.state_dict(a=t.tensor(t.storage(key))), {key: SIX[1:]})
  assert r'archive/data/a\nb' in refusal(torch_bin.read, path)
  t.write_legacy(path, t.state_dict(a=t.tensor(t.storage(key))), {key: SIX[:4]})
  assert r"storage 'a\nb' has 1 numbers" in refusal(torch_bin.read, path)


@pytest.mark.parametrize(
  ('parts', 'message'),
  [
    ({'magic': t.START + t.number(7) + t.STOP}, 'not a file of torch.save'),
    ({'version': t.START + t.number(7) + t.STOP}, 'not a file of torch.save'),
    ({'machine': t.START + b'].'}, 'not a file of torch.save'),
    ({'machine': t.START + b'}.'}, 'big-endian'),
    ({'keys': t.START + b'}.'}, 'list of storages'),
    ({'keys': t.START + b'].'}, 'list of storages'),
    ({'keys': t.START + b'K\0.'}, 'list of storages'),
    ({'keys': t.START + b'](K\0' + t.text('0') + b'e.'}, 'list of storages'),
    ({'keys': t.START + b'](' + t.text('0') * 2 + b'e.'}, 'list of storages'),
    ({'numbers': struct.pack('<q', 5) + SIX}, 'has 5 numbers'),
    ({'numbers': struct.pack('<q', -6) + SIX}, 'has -6 numbers'),
    ({'numbers': struct.pack('<q', 6) + SIX[1:]}, 'ends at byte'),
    ({'numbers': b''}, 'ends at byte'),
    ({'keys': bytes(1 << 20)}, 'malformed'),
  ],
)
def test_wrong_parts_of_an_old_file(path, parts, message):
  t.write_legacy(path, SOUND, {'0': SIX}, **parts)
  assert message in refusal(torch_bin.read, path)


def test_storage_of_a_petabyte(path):
  pickle = t.state_dict(a=t.tensor(t.storage(size=1 << 50)))
  t.write_zip(path, pickle, {'0': SIX})
  assert 'expects 4503599627370496' in refusal(torch_bin.read, path)
  t.write_legacy(path, pickle, {}, numbers=struct.pack('<q', 1 << 50) + SIX)
  assert 'list of storages' in refusal(torch_bin.read, path)
  keys = t.START + b']' + t.text('0') + b'a.'
  numbers = struct.pack('<q', 1 << 50) + SIX
  t.write_legacy(path, pickle, {}, keys=keys, numbers=numbers)
  assert 'ends at byte' in refusal(torch_bin.read, path)


@pytest.mark.parametrize(
  'content',
  [b'', b'PK', b'PK\3\4', b'PK\3\4' + bytes(100), b'\0' * 99, b'\xff' * 99]
  + [b'version https://git-lfs.github.com/spec/v1\n', b'<!DOCTYPE html>'],
)
def test_what_is_no_file_of_torch(path, content):
  with open(path, 'wb') as f:
    f.write(content)
  assert refusal(torch_bin.read, path).startswith(path)
  assert 'cannot read' in refusal(torch_bin.read, path + '.absent')
  assert 'cannot read' in refusal(torch_bin.read, os.path.dirname(path))
