"""Which files of a folder are read, what they may hold, which links are followed."""

import json
import os
import pickle
import struct
import sys

import numpy as np
import pytest
import safetensors.numpy

from bert_jax.interop import hugging_face
from bert_jax.weight_files import local_files
from tests import models
from tests.weight_files import fake_torch
from tests.weight_files.hostile import refusal

INDEX = 'model.safetensors.index.json'
FIRST, SECOND = 'model-00001-of-00002.st', 'model-00002-of-00002.st'


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / 'model'
  path.mkdir()
  (path / 'config.json').write_text('{}')
  (tmp_path / 'outside').write_text('{}')
  return str(path)


def link(target, folder, name='linked'):
  path = os.path.join(folder, name)
  if os.path.lexists(path):
    os.remove(path)
  os.symlink(target, path)


def test_files_and_links_within_the_folder(folder):
  path = os.path.join(folder, 'config.json')
  assert local_files.find(folder, 'config.json') == path
  assert local_files.find(folder, 'absent') is None
  for target in ('config.json', path, '../model/config.json'):
    link(target, folder)
    assert local_files.find(folder, 'linked') == path


def test_only_small_files_are_read_whole(folder):
  path = local_files.find_small(folder, 'config.json')
  os.truncate(path, (8 << 20) + 1)
  message = refusal(local_files.find_small, folder, 'config.json')
  assert '8,388,609 bytes' in message


def test_links_that_lead_out(folder, tmp_path):
  sibling = tmp_path / 'model2'
  sibling.mkdir()
  (sibling / 'x').write_text('')
  os.mkdir(os.path.join(folder, 'sub'))
  (tmp_path / 'model' / 'sub' / 'x').write_text('')
  for target in (
    *('../outside', str(tmp_path / 'outside'), '../model2/x', '../absent'),
    *('/etc/passwd', '/dev/zero', 'sub/x', 'sub/../../outside'),
  ):
    link(target, folder)
    message = refusal(local_files.find, folder, 'linked')
    assert 'is a link that leads out of the folder' in message
    assert f'cp -rL {folder} NEW' in message


def test_cache_of_hugging_face(tmp_path):
  """snapshots/REVISION/NAME links to ../../blobs/HASH of the same model."""
  for model in ('models--a', 'models--b'):
    (tmp_path / model / 'blobs').mkdir(parents=True)
    (tmp_path / model / 'blobs' / '5e1f').write_text('{}')
    (tmp_path / model / 'secret').write_text('{}')
  snapshot = tmp_path / 'models--a' / 'snapshots' / 'c0ffee'
  snapshot.mkdir(parents=True)
  folder = str(snapshot)
  link('../../blobs/5e1f', folder)
  blob = str(tmp_path / 'models--a' / 'blobs' / '5e1f')
  assert local_files.find(folder, 'linked') == blob
  for target in ('../../secret', '../../../models--b/blobs/5e1f'):
    link(target, folder)
    assert 'leads out' in refusal(local_files.find, folder, 'linked')
  # No other folder may link to the blobs, or into a blobs of its own.
  elsewhere = tmp_path / 'models--a' / 'other' / 'c0ffee'
  elsewhere.mkdir(parents=True)
  link('../../blobs/5e1f', str(elsewhere))
  assert 'leads out' in refusal(local_files.find, str(elsewhere), 'linked')


@pytest.fixture
def shards(tmp_path):
  """A folder of two files with the tensors a and b, and c."""
  path = str(tmp_path / 'model')
  os.mkdir(path)
  save(path, FIRST, 'a', 'b')
  save(path, SECOND, 'c')
  return path


def save(folder, file, *names):
  """Writes tensors [1], [2] ... of these names."""
  tensors = {name: np.array([ord(name) - 96.0]) for name in names}
  safetensors.numpy.save_file(tensors, os.path.join(folder, file))


def read_by(folder, index):
  with open(os.path.join(folder, INDEX), 'w') as f:
    f.write(index if isinstance(index, str) else json.dumps(index))
  return local_files.read_shards(folder, INDEX, local_files.read_safetensors)


def read(folder, **weight_map):
  return read_by(folder, {'metadata': {}, 'weight_map': weight_map})


def test_tensors_of_all_files(shards):
  found = read(shards, c=SECOND, a=FIRST, b=FIRST)
  assert {k: v.tolist() for k, v in found.items()} == {
    'a': [1],
    'b': [2],
    'c': [3],
  }


@pytest.mark.parametrize(
  ('weight_map', 'message'),
  [
    ({'a': FIRST, 'b': FIRST, 'c': 'model-3.st'}, 'model-3.st is missing'),
    (
      {'a': FIRST, 'b': FIRST, 'c': SECOND, 'd': SECOND},
      f"{SECOND} is not what {INDEX} lists: it differs in 'd'",
    ),
    ({'a': FIRST, 'b': SECOND, 'c': SECOND}, "it differs in 'b'"),
  ],
)
def test_files_that_are_missing_or_hold_other_tensors(
  shards, weight_map, message
):
  assert message in refusal(lambda: read(shards, **weight_map))


@pytest.mark.parametrize(
  'file',
  [
    *('../outside.st', '/outside.st', 'sub/x.st', './x.st', '..', '', '~'),
    *('x\0.st', 'x\n.st', 'x' * 300, '-x', 5, None, [FIRST]),
  ],
)
def test_names_that_are_no_plain_names(shards, file):
  save(os.path.dirname(shards), 'outside.st', 'c')
  message = refusal(lambda: read(shards, a=FIRST, b=FIRST, c=file))
  assert 'only plain names of files of its own folder' in message


@pytest.mark.parametrize(
  'index',
  [
    *('', '{', '[]', '[' * 100_000, '{}', '{"weight_map": 7}'),
    *('{"weight_map": {}}', ' ' * ((8 << 20) + 1)),
  ],
)
def test_garbage_instead_of_an_index(shards, index):
  assert os.path.join(shards, INDEX) in refusal(read_by, shards, index)


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'x.safetensors')


def make_entry(dtype='F32', shape=(2,), offsets=(0, 8)):
  return {'dtype': dtype, 'shape': shape, 'data_offsets': offsets}


def write_header(path, header, data=bytes(8), length=None):
  """Writes a header, an object or bytes, and what follows."""
  if not isinstance(header, bytes):
    header = json.dumps(header).encode()
  with open(path, 'wb') as f:
    f.write(struct.pack('<Q', len(header) if length is None else length))
    f.write(header + data)


def test_what_the_library_writes(path):
  tensors = {
    kind: np.arange(6).reshape(2, 3).astype(kind)
    for kind in 'f8 f4 f2 i8 i4 i2 i1 u1 bool'.split()
  }
  tensors |= {
    'scalar': np.array(1.5, np.float16),
    'empty': np.zeros((0, 3), np.float32),
  }
  safetensors.numpy.save_file(tensors, path, metadata={'format': 'pt'})
  found = local_files.read_safetensors(path)
  assert found.keys() == tensors.keys()
  for name, value in tensors.items():
    assert found[name].dtype == value.dtype
    np.testing.assert_array_equal(found[name], value)


def test_tensors_are_found_in_any_order_of_the_header(path):
  header = {'b': make_entry(offsets=(8, 16)), 'a': make_entry('BF16', (4,))}
  data = struct.pack('<4H2f', 0x3F80, 0, 0, 0xC000, 5, 6)
  write_header(path, header, data)
  found = local_files.read_safetensors(path)
  assert {x.dtype for x in found.values()} == {np.dtype(np.float32)}
  assert {name: x.tolist() for name, x in found.items()} == {
    'a': [1, 0, 0, -2],
    'b': [5, 6],
  }


A, B = make_entry(), make_entry(offsets=(8, 16))


@pytest.mark.parametrize(
  ('header', 'data'),
  [
    ({'a': A}, bytes(7)),
    ({'a': A}, bytes(9)),
    ({'a': A, 'b': A}, bytes(8)),
    ({'b': B}, bytes(16)),
    ({'a': make_entry(offsets=(8, 0))}, bytes(8)),
    ({'a': make_entry(shape=(2**62, 4))}, bytes(8)),
    ({'a': make_entry('F33')}, bytes(8)),
    ({'a': make_entry('F8_E4M3', (8,))}, bytes(8)),
    ([], b''),
    (b'\xff' * 8, b''),
    (b'[' * 100_000, b''),
  ],
)
def test_headers_that_cannot_be(path, header, data):
  write_header(path, header, data)
  assert refusal(local_files.read_safetensors, path).startswith(
    f'cannot read {path}:'
  )


SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_torch_reads_a_file_without_its_code(tmp_path, monkeypatch):
  fake_torch.install(monkeypatch)
  path = str(tmp_path / 'x.bin')
  fake_torch.save(path, {'a': SIX, 'b.c': SIX[0]})
  found = local_files.read_torch(path)
  assert {name: x.tolist() for name, x in found.items()} == {
    'a': [[0, 1, 2], [3, 4, 5]],
    'b.c': [0, 1, 2],
  }
  asked = {'weights_only': True, 'map_location': 'cpu', 'mmap': True}
  assert fake_torch.calls == [(path, asked)]


def test_bfloat16_becomes_float32(tmp_path, monkeypatch):
  brain = fake_torch.Tensor(SIX, fake_torch.bfloat16)
  fake_torch.install(monkeypatch, load=lambda path, **_: {'a': brain})
  (tmp_path / 'x.bin').write_bytes(b'PK')
  found = local_files.read_torch(str(tmp_path / 'x.bin'))
  np.testing.assert_array_equal(found['a'], SIX)


HOW_TO_TRUST = (
  'Weights only load failed. This file can still be loaded.\n\t(1) Use '
  'weights_only=False.\n\tWeightsUnpickler error: Unsupported global: os.system'
  '\n\nCheck the documentation of torch.load'
)


@pytest.mark.parametrize(
  ('error', 'shown'),
  [
    (
      pickle.UnpicklingError(HOW_TO_TRUST),
      ': Unsupported global: os.system; copy it again',
    ),
    (
      RuntimeError('PytorchStreamReader failed: no central\ndirectory'),
      ': PytorchStreamReader failed: no central; copy it again',
    ),
    (EOFError(), ': EOFError; copy it again, or save model.state_dict() alone'),
  ],
)
def test_a_refusal_of_torch_is_one_line(tmp_path, monkeypatch, error, shown):
  def load(path, **_):
    raise error

  fake_torch.install(monkeypatch, load=load)
  path = tmp_path / 'x.bin'
  path.write_bytes(b'PK')
  message = refusal(local_files.read_torch, str(path))
  assert f'cannot read {path}{shown}' in message


@pytest.mark.parametrize('held', [[SIX], {'model': {'a': SIX}}])
def test_what_is_no_state_dict_is_refused(tmp_path, monkeypatch, held):
  fake_torch.install(monkeypatch, load=lambda path, **_: held)
  (tmp_path / 'x.bin').write_bytes(b'PK')
  message = refusal(local_files.read_torch, str(tmp_path / 'x.bin'))
  assert 'or save model.state_dict() alone' in message


def test_without_torch_one_line_says_what_to_do(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'torch', None)  # as if it were absent
  folder = models.export_to(tmp_path / 'model')
  os.rename(f'{folder}/model.safetensors', f'{folder}/pytorch_model.bin')
  message = refusal(hugging_face.read, folder)
  assert f'{folder}/pytorch_model.bin is read by torch: ' in message
  assert 'pip install torch, or convert it to model.safetensors' in message


class Calls:
  """Makes a file when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return open, (self.path, 'w')


@pytest.mark.filterwarnings('default')  # torch's
def test_files_of_torch_itself_are_read_or_refused(tmp_path):
  torch = pytest.importorskip('torch')
  tensor = torch.tensor(SIX)
  tensors = {
    'a': tensor,
    'transposed': tensor.T,
    'half': tensor.half(),
    'brain': tensor.bfloat16(),
    'parameter': torch.nn.Parameter(tensor),
  }
  path = str(tmp_path / 'x.bin')
  for zipped in (True, False):
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    found = local_files.read_torch(path)
    assert found['half'].dtype == np.float16
    assert found['brain'].dtype == np.float32
    for name, x in found.items():
      expected = SIX.T if name == 'transposed' else SIX
      np.testing.assert_array_equal(x, expected)
    canary = tmp_path / 'canary'
    harmful = {'a': Calls(str(canary))}
    torch.save(harmful, path, _use_new_zipfile_serialization=zipped)
    refusal(local_files.read_torch, path)
    assert not canary.exists()
