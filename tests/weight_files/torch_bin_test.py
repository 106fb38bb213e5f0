"""What torch_bin reads, and which damaged and hostile files it refuses."""

import os
import pathlib
import re
import struct
import zipfile
import zlib

import numpy as np
import pytest

from bert_jax.weight_files import torch_bin
from tests.weight_files import torch_files as t
from tests.weight_files.hostile import refusal

SIX = np.arange(6, dtype='<f4').tobytes()
ROWS = [[0, 1, 2], [3, 4, 5]]
SOUND = t.state_dict(a=t.tensor())
TWO = t.state_dict(a=t.tensor(), b=t.tensor(t.storage('1')))
HEADER = 30 + len('archive/data/0')  # bytes


@pytest.fixture(params=['zip', 'legacy'])
def write(request, tmp_path):
  writer = {'zip': t.write_zip, 'legacy': t.write_legacy}[request.param]
  return lambda *args, **more: writer(tmp_path / 'x.bin', *args, **more)


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'x.bin')


def test_views_parameters_and_shared_storages(write):
  pickle = t.state_dict(
    a=t.tensor(),
    tied=t.tensor(),
    turned=t.tensor(shape=(3, 2), strides=(1, 3)),
    part=t.tensor(offset=4, shape=(2,), strides=(1,)),
  )
  found = torch_bin.read(write(pickle, {'0': SIX}))
  assert {name: x.tolist() for name, x in found.items()} == {
    'a': ROWS,
    'tied': ROWS,
    'turned': [[0, 3], [1, 4], [2, 5]],
    'part': [4, 5],
  }
  assert np.shares_memory(found['a'], found['tied'])
  pickle = t.state_dict(
    parameter=t.call(
      'torch._utils._rebuild_parameter', t.tensor(), t.FALSE, t.EMPTY
    ),
    scalar=t.tensor(offset=5, shape=(), strides=()),
    # The stride of an axis of length 1 may be anything.
    row=t.tensor(shape=(1, 6), strides=(2**62, 1)),
  )
  found = torch_bin.read(write(pickle, {'0': SIX}))
  assert {name: x.tolist() for name, x in found.items()} == {
    'parameter': ROWS,
    'scalar': 5,
    'row': [[0, 1, 2, 3, 4, 5]],
  }


@pytest.mark.parametrize(
  ('kind', 'raw', 'want', 'dtype'),
  [
    ('Float', '0000803f 000000c0', [1, -2], 'float32'),
    ('Double', '000000000000f03f 00000000000000c0', [1, -2], 'float64'),
    ('Half', '003c 00c0', [1, -2], 'float16'),
    ('BFloat16', '803f 00c0', [1, -2], 'float32'),
    ('BFloat16', '807f 0100', [np.inf, 2.0**-133], 'float32'),
    ('Long', '0100000000000000 feffffffffffffff', [1, -2], 'int64'),
    ('Int', '01000000 feffffff', [1, -2], 'int32'),
    ('Short', '0100 feff', [1, -2], 'int16'),
    ('Char', '01 fe', [1, -2], 'int8'),
    ('Byte', '01 fe', [1, 254], 'uint8'),
    ('Bool', '01 00', [True, False], 'bool'),
  ],
)
def test_types_and_byte_orders(tmp_path, kind, raw, want, dtype):
  data = bytes.fromhex(raw)
  stored = t.storage(size=2, kind=kind)
  pickle = t.state_dict(a=t.tensor(stored, shape=(2,), strides=(1,)))
  item = len(data) // 2
  swapped = data[:item][::-1] + data[item:][::-1]
  for path in (
    t.write_zip(tmp_path / 'new', pickle, {'0': data}),
    t.write_legacy(tmp_path / 'old', pickle, {'0': data}, item_size=item),
    t.write_zip(tmp_path / 'big', pickle, {'0': swapped}, byteorder='big'),
  ):
    found = torch_bin.read(path)['a']
    assert (found.tolist(), found.dtype) == (want, dtype)
    assert found.dtype.isnative


def test_state_dict_with_metadata_and_protocol_4(path):
  """_metadata comes by BUILD; protocol 4 has other opcodes for the same."""
  metadata = b'}' + t.text('_metadata') + b'}s' + b'b'
  pickle = SOUND[: -len(t.STOP)] + metadata + t.STOP
  t.write_zip(path, pickle, {'0': SIX})
  assert torch_bin.read(path)['a'].tolist() == ROWS
  short = b'\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94'
  pickle = SOUND.replace(t.name('collections.OrderedDict'), short, 1)
  pickle = pickle.replace(t.START, b'\x80\x04\x95' + bytes(8))
  t.write_zip(path, pickle, {'0': SIX})
  assert torch_bin.read(path)['a'].tolist() == ROWS


def test_names_of_members_are_no_paths(tmp_path):
  more = {f'../{"../" * n}outside': b'!' for n in range(3)}
  path = tmp_path / 'folder' / 'x.bin'
  os.mkdir(path.parent)
  t.write_zip(path, SOUND, {'0': SIX}, **more)
  assert torch_bin.read(str(path))['a'].tolist() == ROWS
  (tmp_path / 'outside').write_bytes(SIX)
  pickle = t.state_dict(a=t.tensor(t.storage('../../../outside')))
  t.write_zip(path, pickle, {})
  assert 'takes 0 bytes' in refusal(torch_bin.read, str(path))


@pytest.mark.parametrize(
  ('tensor', 'message'),
  [
    (t.tensor(shape=(2, 4)), r'shape \(2, 4\)'),
    (t.tensor(offset=1), 'offset 1'),
    (t.tensor(strides=(4, 1)), 'does not fit'),
    (t.tensor(strides=(0, 0), shape=(2**40, 2**40)), 'does not fit'),
    (t.tensor(strides=(0, 1), shape=(3, 3)), 'does not fit'),
    (t.tensor(shape=(2**63, 2)), 'does not fit'),
    (t.tensor(shape=(0, 3)), 'does not fit'),
    (t.tensor(offset=2**64), 'does not fit'),
    (t.tensor(offset=-1), 'malformed'),
    (t.tensor(strides=(-3, 1)), 'malformed'),
    (t.tensor(shape=(2, 3), strides=(1,)), 'malformed'),
    (t.tensor(shape=(1,) * 9, strides=(1,) * 9), 'malformed'),
    (t.tensor(t.text('storage')), 'malformed'),
    (t.tensor().replace(t.number(2), b'\x88', 1), 'malformed'),
    (t.tensor() + b'}' + t.text('offset') + t.number(9) + b'sb', 'malformed'),
    (t.call('torch._utils._rebuild_parameter', b'N', b'N', b'N'), 'malformed'),
    (t.call('torch.FloatStorage', t.number(10**9)), 'malformed'),
    (t.call('collections.OrderedDict', b']'), 'malformed'),
    (t.text('x') + t.many() + b'R', 'malformed'),
    (t.tensor(t.storage(kind='Complex')), "for 'torch.ComplexStorage'"),
    (t.tensor(t.storage(size=-1)), 'persistent id'),
    (t.tensor(t.storage(size=2**64)), 'persistent id'),
    (t.tensor(t.storage(view=[b'}'])), 'persistent id'),
    (t.storage().replace(b'storage', b'modules'), 'persistent id'),
    (t.many(*[b']'] * 5) + b'Q', 'persistent id'),
    (t.text('0') + b'Q', 'malformed'),
    (t.many(t.storage(), t.storage(size=5)), 'two types or sizes'),
    (t.many(t.storage(), t.number(7)), "entry 'a' is not a tensor"),
    (t.storage(), "entry 'a' is not a tensor"),
    (t.name('torch.FloatStorage'), 'not a tensor|list of storages'),
    (t.state_dict(b=t.tensor())[2:-1], "entry 'a' is not a tensor"),
  ],
)
def test_wrong_tensors(write, tensor, message):
  path = write(t.state_dict(a=tensor), {'0': SIX})
  assert re.search(message, refusal(torch_bin.read, path))


def test_sharing_is_bounded(path):
  """So that a small file does not become large arrays later."""
  names = [f't{i}' for i in range(5)]
  pickle = t.state_dict(**dict.fromkeys(names[:4], t.tensor()))
  t.write_zip(path, pickle, {'0': SIX})
  assert len(torch_bin.read(path)) == 4
  pickle = t.state_dict(**dict.fromkeys(names, t.tensor()))
  t.write_zip(path, pickle, {'0': SIX})
  assert '30 numbers, but only 6 are stored' in refusal(torch_bin.read, path)


def edit(path, change):
  data = bytearray(pathlib.Path(path).read_bytes())
  pathlib.Path(path).write_bytes(change(data) or data)


def test_cut_short_anywhere(write):
  size = os.path.getsize(write(SOUND, {'0': SIX}))
  for end in range(0, size, 7):
    path = write(SOUND, {'0': SIX})
    os.truncate(path, end)
    assert path in refusal(torch_bin.read, path)


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


def flip(data):
  data[data.index(SIX) + 9] ^= 4


def erase(data):
  data[data.index(SIX) - HEADER] = 0


def inflate(data):
  """Gives a member 2**32 - 2 bytes, in the list of members."""
  entry = data.rindex(b'PK\1\2')
  data[entry + 20 : entry + 28] = struct.pack('<II', *[2**32 - 2] * 2)


def overlap(data):
  """Lets a member begin where the one before does."""
  second = data.rindex(b'PK\1\2')
  first = data.rindex(b'PK\1\2', 0, second)
  data[second + 42 : second + 46] = data[first + 42 : first + 46]


def extend(data):
  """Makes a list of members of many megabytes."""
  first, last = data.index(b'PK\1\2'), data.index(b'PK\5\6')
  entries = data[first:last] * 30_000
  data[last + 12 : last + 16] = struct.pack('<I', len(entries))
  return data[:first] + entries + data[last:]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (flip, 'Bad CRC-32'),
    (erase, 'Bad magic number'),
    (inflate, 'more bytes than it has'),
    (overlap, 'begin at one place'),
    (extend, 'list of members takes more'),
  ],
)
def test_damaged_zips(path, change, message):
  t.write_zip(path, TWO, {'0': SIX, '1': SIX})
  edit(path, change)
  assert re.search(message, refusal(torch_bin.read, path))


def test_bomb_of_members_in_each_other(path):
  """A file of 70 kB whose 200 members would have more than 12 MB."""
  blob, places, fields = bytes(60_000), [], struct.Struct('<3HI3I2H')
  for i in range(200):
    name = b'%04d' % i
    crc = zlib.crc32(blob)
    common = fields.pack(20, 0, 0, 0, crc, len(blob), len(blob), 4, 0)
    blob = b'PK\3\4' + common + name + blob
    places.append((common, len(blob), name))
  entries = b''.join(
    b'PK\1\2\x14\0'
    + common
    + bytes(10)
    + struct.pack('<I', len(blob) - n)
    + name
    for common, n, name in places
  )
  end = struct.pack('<4x2H2I2x', 200, 200, len(entries), len(blob))
  pathlib.Path(path).write_bytes(blob + entries + b'PK\5\6' + end)
  with zipfile.ZipFile(path) as z:
    assert sum(member.file_size for member in z.infolist()) > 12_000_000
  assert 'more bytes than it has' in refusal(torch_bin.read, path)


def test_compressed_bomb(path):
  pickle = t.state_dict(a=t.tensor(t.storage(size=25_000_000)))
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('archive/data.pkl', pickle, zipfile.ZIP_STORED)
    z.writestr('archive/data/0', bytes(100_000_000))
  assert os.path.getsize(path) < 200_000
  assert "'archive/data/0' is compressed" in refusal(torch_bin.read, path)


LONG = SOUND + bytes(1 << 20)
STRANGE = t.state_dict(a=t.tensor(t.storage('a\nb')))


@pytest.mark.filterwarnings('ignore:Duplicate name')
@pytest.mark.parametrize(
  ('members', 'message'),
  [
    (
      [('x/data.pkl', SOUND)],
      "'x/data/0' takes 0 bytes, its pickle expects 24",
    ),
    ([('x/data.pkl', SOUND), ('x/data/0', SIX[:-4])], 'takes 20 bytes'),
    ([('x/data.pkl', SOUND), *[('x/data/0', SIX)] * 2], 'a name twice'),
    ([('x/data.pkl', SOUND), ('y/data.pkl', SOUND)], 'with 2 data.pkl'),
    ([('a.txt', b'')], 'with 0 data.pkl'),
    ([('x/data.pkl', SOUND), ('x/byteorder', b'middle')], 'not little or big'),
    ([('x/data.pkl', SOUND), ('x/byteorder', b'little' * 9)], 'at most 16'),
    ([('x/data.pkl', LONG)], 'at most 1,048,576'),
    ([('x\ny/data.pkl', LONG)], r"'x\\ny/data.pkl' takes"),
    ([('x\ny/data.pkl', b'')], 'malformed'),
    (
      [('x/data.pkl', STRANGE), ('x/data/a\nb', SIX[1:])],
      r"data/a\\nb' takes 23",
    ),
  ],
)
def test_wrong_members(path, members, message):
  with zipfile.ZipFile(path, 'w') as z:
    for name, data in members:
      z.writestr(name, data)
  assert re.search(message, refusal(torch_bin.read, path))


HUGE = t.state_dict(a=t.tensor(t.storage(size=1 << 50)))


@pytest.mark.parametrize(
  ('parts', 'message'),
  [
    ({'magic': t.START + t.number(7) + t.STOP}, 'not a file of torch.save'),
    ({'machine': t.START + b'].'}, 'not a file of torch.save'),
    ({'machine': t.START + b'}.'}, 'big-endian'),
    ({'keys': t.START + b'}.'}, 'list of storages'),
    ({'keys': t.START + b'K\0.'}, 'list of storages'),
    ({'keys': t.START + b'](K\0' + t.text('0') + b'e.'}, 'list of storages'),
    ({'keys': t.START + b'](' + t.text('0') * 2 + b'e.'}, 'list of storages'),
    ({'numbers': struct.pack('<q', 5) + SIX}, 'has 5 numbers'),
    ({'numbers': struct.pack('<q', -6) + SIX}, 'has -6 numbers'),
    ({'numbers': struct.pack('<q', 6) + SIX[1:]}, 'is cut short'),
    ({'numbers': b''}, 'is cut short'),
    ({'keys': bytes(1 << 20)}, 'malformed'),
    ({'pickle': STRANGE}, 'list of storages'),
    (
      {'pickle': HUGE, 'numbers': struct.pack('<q', 1 << 50) + SIX},
      'expects 1125899906842624',
    ),
  ],
)
def test_wrong_parts_of_an_old_file(path, parts, message):
  t.write_legacy(path, **{'pickle': SOUND, 'storages': {'0': SIX}, **parts})
  assert message in refusal(torch_bin.read, path)


def test_storage_of_a_petabyte(path):
  t.write_zip(path, HUGE, {'0': SIX})
  assert 'expects 4503599627370496' in refusal(torch_bin.read, path)
  t.write_legacy(path, SOUND, {'0': SIX})
  os.truncate(path, 1 << 42)  # sparse: it takes no place on the disk
  assert 'bytes of memory' in refusal(torch_bin.read, path)


@pytest.mark.parametrize(
  'content',
  [b'', b'PK', b'PK\3\4', b'PK\3\4' + bytes(100), b'\0' * 99, b'\xff' * 99]
  + [b'version https://git-lfs.github.com/spec/v1\n', b'<!DOCTYPE html>'],
)
def test_what_is_no_file_of_torch(path, content):
  pathlib.Path(path).write_bytes(content)
  assert refusal(torch_bin.read, path).startswith(path)
  assert 'cannot read' in refusal(torch_bin.read, path + '.absent')
  assert 'cannot read' in refusal(torch_bin.read, os.path.dirname(path))
