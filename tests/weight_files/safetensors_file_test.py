"""What safetensors_file reads and refuses."""

import json
import struct

import numpy as np
import pytest
import safetensors.numpy

from bert_jax.weight_files import safetensors_file
from tests.weight_files.hostile import refusal


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'x.safetensors')


def entry(dtype='F32', shape=(2,), offsets=(0, 8)):
  return {'dtype': dtype, 'shape': shape, 'data_offsets': offsets}


def write(path, header, data=bytes(8), length=None):
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
  found = safetensors_file.read(path)
  assert found.keys() == tensors.keys()
  for name, value in tensors.items():
    assert found[name].dtype == value.dtype
    np.testing.assert_array_equal(found[name], value)


def test_tensors_are_found_in_any_order_of_the_header(path):
  header = {'b': entry(offsets=(8, 16)), 'a': entry('BF16', (4,))}
  data = struct.pack('<4H2f', 0x3F80, 0, 0, 0xC000, 5, 6)
  write(path, header, data)
  found = safetensors_file.read(path)
  assert {x.dtype for x in found.values()} == {np.dtype(np.float32)}
  assert {name: x.tolist() for name, x in found.items()} == {
    'a': [1, 0, 0, -2],
    'b': [5, 6],
  }


A, B = entry(), entry(offsets=(8, 16))


@pytest.mark.parametrize(
  ('header', 'data'),
  [
    ({'a': A}, bytes(7)),
    ({'a': A}, bytes(9)),
    ({'a': A, 'b': A}, bytes(8)),
    ({'b': B}, bytes(16)),
    ({'a': entry(offsets=(8, 0))}, bytes(8)),
    ({'a': entry(shape=(2**62, 4))}, bytes(8)),
    ({'a': entry('F33')}, bytes(8)),
    ({'a': entry('F8_E4M3', (8,))}, bytes(8)),
    ([], b''),
    (b'\xff' * 8, b''),
    (b'[' * 100_000, b''),
  ],
)
def test_headers_that_cannot_be(path, header, data):
  write(path, header, data)
  assert refusal(safetensors_file.read, path).startswith(f'cannot read {path}:')
