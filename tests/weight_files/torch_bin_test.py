"""What torch_bin reads, and which malformed files it refuses."""

import os
import re

import numpy as np
import pytest

from bert_jax.weight_files import torch_bin
from tests.weight_files import torch_files as t
from tests.weight_files.hostile import refusal

SIX = np.arange(6, dtype='<f4')
ROWS = [[0, 1, 2], [3, 4, 5]]
SOUND = t.state_dict(a=t.tensor())


@pytest.fixture(params=['zip', 'legacy'])
def write(request, tmp_path):
  writer = {'zip': t.write_zip, 'legacy': t.write_legacy}[request.param]
  return lambda *args, **more: writer(tmp_path / 'x.bin', *args, **more)


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'x.bin')


def test_views_offsets_and_shared_storages(write):
  pickle = t.state_dict(
    a=t.tensor(),
    tied=t.tensor(),
    turned=t.tensor(shape=(3, 2), strides=(1, 3)),
    part=t.tensor(offset=4, shape=(2,), strides=(1,)),
    scalar=t.tensor(offset=5, shape=(), strides=()),
  )
  found = torch_bin.read(write(pickle, {'0': SIX.tobytes()}))
  assert {name: x.tolist() for name, x in found.items()} == {
    'a': ROWS,
    'tied': ROWS,
    'turned': [[0, 3], [1, 4], [2, 5]],
    'part': [4, 5],
    'scalar': 5,
  }
  assert np.shares_memory(found['a'], found['tied'])


def test_parameters_and_axes_of_length_1(write):
  pickle = t.state_dict(
    parameter=t.call(
      'torch._utils._rebuild_parameter', t.tensor(), t.FALSE, t.EMPTY
    ),
    # Its stride may be anything.
    row=t.tensor(shape=(1, 6), strides=(2**62, 1)),
  )
  found = torch_bin.read(write(pickle, {'0': SIX.tobytes()}))
  assert found['parameter'].tolist() == ROWS
  assert found['row'].tolist() == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
  ('kind', 'raw', 'want', 'dtype'),
  [
    ('Float', '0000803f 000000c0', [1, -2], 'float32'),
    ('Double', '000000000000f03f 00000000000000c0', [1, -2], 'float64'),
    ('Half', '003c 00c0', [1, -2], 'float16'),
    ('BFloat16', '803f 00c0', [1, -2], 'float32'),
    ('Long', '0100000000000000 feffffffffffffff', [1, -2], 'int64'),
    ('Int', '01000000 feffffff', [1, -2], 'int32'),
    ('Short', '0100 feff', [1, -2], 'int16'),
    ('Char', '01 fe', [1, -2], 'int8'),
    ('Byte', '01 fe', [1, 254], 'uint8'),
    ('Bool', '01 00', [True, False], 'bool'),
  ],
)
def test_types(tmp_path, kind, raw, want, dtype):
  data = bytes.fromhex(raw)
  stored = t.storage(size=2, kind=kind)
  pickle = t.state_dict(a=t.tensor(stored, shape=(2,), strides=(1,)))
  item = len(data) // 2
  for path in (
    t.write_zip(tmp_path / 'new', pickle, {'0': data}),
    t.write_legacy(tmp_path / 'old', pickle, {'0': data}, item_size=item),
  ):
    found = torch_bin.read(path)['a']
    assert (found.tolist(), found.dtype) == (want, dtype)


def test_big_endian_zip(path):
  t.write_zip(path, SOUND, {'0': SIX.astype('>f4').tobytes()}, byteorder='big')
  assert torch_bin.read(path)['a'].tolist() == ROWS


def test_state_dict_with_metadata_and_protocol_4(path):
  """_metadata comes by BUILD; protocol 4 has other opcodes for the same."""
  metadata = b'}' + t.text('_metadata') + b'}s' + b'b'
  pickle = SOUND[: -len(t.STOP)] + metadata + t.STOP
  t.write_zip(path, pickle, {'0': SIX.tobytes()})
  assert torch_bin.read(path)['a'].tolist() == ROWS
  short = b'\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94'
  pickle = SOUND.replace(t.name('collections.OrderedDict'), short, 1)
  pickle = pickle.replace(t.START, b'\x80\x04\x95' + bytes(8))
  t.write_zip(path, pickle, {'0': SIX.tobytes()})
  assert torch_bin.read(path)['a'].tolist() == ROWS


def test_names_of_members_are_no_paths(tmp_path):
  outside = tmp_path / 'outside'
  more = {f'../{"../" * n}outside': b'!' for n in range(3)}
  path = tmp_path / 'folder' / 'x.bin'
  os.mkdir(path.parent)
  t.write_zip(path, SOUND, {'0': SIX.tobytes()}, **more)
  assert torch_bin.read(str(path))['a'].tolist() == ROWS
  key = '../../../outside'
  outside.write_bytes(SIX.tobytes())
  t.write_zip(path, t.state_dict(a=t.tensor(t.storage(key))), {})
  assert 'is missing' in refusal(torch_bin.read, str(path))


@pytest.mark.parametrize(
  ('tensor', 'message'),
  [
    (t.tensor(shape=(2, 4)), r'shape \(2, 4\)'),
    (t.tensor(offset=1), 'offset 1'),
    (t.tensor(strides=(4, 1)), 'does not fit'),
    (t.tensor(strides=(0, 0), shape=(2**40, 2**40)), 'does not fit'),
    (t.tensor(strides=(0, 1), shape=(3, 3)), 'does not fit'),
    (t.tensor(strides=(2**70, 1)), 'does not fit'),
    (t.tensor(shape=(2**63, 2)), 'does not fit'),
    (t.tensor(shape=(2**2000, 1)), 'does not fit'),
    (t.tensor(shape=(0, 3)), 'does not fit'),
    (t.tensor(offset=2**64), 'does not fit'),
    (t.tensor(offset=-1), 'malformed'),
    (t.tensor(strides=(-3, 1)), 'malformed'),
    (t.tensor(shape=(-2, -3)), 'malformed'),
    (t.tensor(shape=(2, 3), strides=(1,)), 'malformed'),
    (t.tensor(shape=(1,) * 9, strides=(1,) * 9), 'malformed'),
    (t.tensor(t.text('storage')), 'malformed'),
    (t.tensor().replace(t.number(2), b'\x88', 1), 'malformed'),
    (t.call('torch._utils._rebuild_tensor_v2'), 'malformed'),
    (t.call('torch._utils._rebuild_parameter', b'N', b'N', b'N'), 'malformed'),
    (t.call('torch.FloatStorage', t.number(10**9)), 'malformed'),
    (t.call('collections.OrderedDict', b']'), 'malformed'),
    (t.text('x') + t.many() + b'R', 'malformed'),
    (t.tensor(t.storage(kind='Complex')), "for 'torch.ComplexStorage'"),
    (t.tensor(t.storage(size=-1)), 'persistent id'),
    (t.tensor(t.storage(size=2**64)), 'persistent id'),
    (t.tensor(t.storage(view=[b'}'])), 'persistent id'),
    (t.many(*[t.text('module')] * 5) + b'Q', 'persistent id'),
    (t.storage().replace(b'storage', b'modules'), 'persistent id'),
    (t.many(*[b']'] * 5) + b'Q', 'persistent id'),
    (t.many(t.text('storage')) + b'Q', 'malformed'),
    (t.text('0') + b'Q', 'malformed'),
    (t.many(t.storage(), t.storage(size=5)), 'two types or sizes'),
    (t.many(t.storage(), t.number(7)), "entry 'a' is no tensor"),
    (t.storage(), "entry 'a' is no tensor"),
    (t.state_dict(b=t.tensor())[2:-1], "entry 'a' is no tensor"),
  ],
)
def test_wrong_tensors(write, tensor, message):
  path = write(t.state_dict(a=tensor), {'0': SIX.tobytes()})
  assert re.search(message, refusal(torch_bin.read, path))


def test_sharing_is_bounded(path):
  """So that a small file does not become large arrays later."""
  names = [f't{i}' for i in range(5)]
  pickle = t.state_dict(**dict.fromkeys(names[:4], t.tensor()))
  t.write_zip(path, pickle, {'0': SIX.tobytes()})
  assert len(torch_bin.read(path)) == 4
  pickle = t.state_dict(**dict.fromkeys(names, t.tensor()))
  t.write_zip(path, pickle, {'0': SIX.tobytes()})
  assert '30 numbers, but only 6 are stored' in refusal(torch_bin.read, path)
