"""What safetensors_file reads and refuses."""

import json
import os
import pathlib
import random
import re
import struct

import numpy as np
import pytest
import safetensors.numpy

from bert_jax import errors
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
  ('header', 'data', 'message'),
  [
    ({'a': A}, bytes(7), 'cannot read'),
    ({'a': A}, bytes(9), 'cannot read'),
    ({'a': A, 'b': A}, bytes(8), 'invalid ?offset'),
    ({'a': A, 'b': entry(offsets=(4, 12))}, bytes(12), 'invalid ?offset'),
    ({'b': B}, bytes(16), 'invalid ?offset'),
    ({'a': entry(offsets=(8, 0))}, bytes(8), 'cannot read'),
    ({'a': entry(offsets=(0, 2**63))}, bytes(8), 'cannot read'),
    ({'a': entry(shape=(-2,))}, bytes(8), 'cannot read'),
    ({'a': entry(shape=(2**62, 4))}, bytes(8), 'overflow'),
    ({'a': entry(shape=(2**63, 2), offsets=(0, 0))}, b'', 'overflow'),
    ({'a': entry(shape=(1,) * 8 + (2,))}, bytes(8), '9 axes; up to 8'),
    ({'a': entry('F33')}, bytes(8), 'cannot read'),
    ({'a': entry('F8_E4M3', (8,))}, bytes(8), "'a' is F8_E4M3 with 1 axes"),
    ({'a': 5}, bytes(8), 'cannot read'),
    ({'__metadata__': {'a': 1}}, b'', 'cannot read'),
    ([], b'', 'cannot read'),
    (b'\xff' * 8, b'', 'cannot read'),
    (b'[' * 100_000, b'', 'cannot read'),
    (b'{"a":' + b'9' * 100_000, b'', 'cannot read'),
    (b'{"a\nb' * 9, b'', 'cannot read'),
  ],
)
def test_headers_that_cannot_be(path, header, data, message):
  write(path, header, data)
  got = refusal(safetensors_file.read, path)
  assert got.startswith(f'cannot read {path}: ')
  # One release of the library says InvalidOffset, another invalid offset.
  assert re.search(message, got, re.IGNORECASE)


@pytest.mark.parametrize('length', [0, 9, 2**31, 2**63, 2**64 - 1])
def test_length_of_the_header_that_cannot_be(path, length):
  write(path, b'{}', b'', length)
  message = f'its header takes {length:,} bytes, but the file has 10'
  assert message in refusal(safetensors_file.read, path)


def test_header_of_many_megabytes(path):
  """The library alone would take 100 MB and make 1 GB of them."""
  write(path, b'{' + b' ' * (1 << 20) + b'}', b'')
  assert 'a header at most 1,048,576' in refusal(safetensors_file.read, path)


def test_sparse_file_of_terabytes(path):
  """It takes no place on the disk, but its numbers would in the memory."""
  write(path, {'a': entry(shape=(1 << 40,), offsets=(0, 1 << 42))}, b'')
  os.truncate(path, os.path.getsize(path) + (1 << 42))
  assert 'bytes of memory' in refusal(safetensors_file.read, path)


def test_cut_short_anywhere(path):
  write(path, {'a': A})
  size = os.path.getsize(path)
  assert safetensors_file.read(path)['a'].tolist() == [0, 0]
  for end in range(size):
    write(path, {'a': A})
    os.truncate(path, end)
    refusal(safetensors_file.read, path)


def test_five_hundred_damaged_files_are_read_or_refused(path):
  safetensors.numpy.save_file({'a': np.ones((2, 3)), 'b': np.ones(2)}, path)
  sound = pathlib.Path(path).read_bytes()
  rng = random.Random(7)
  refused = 0
  for _ in range(500):
    damaged = bytearray(sound)
    for _ in range(rng.randrange(1, 4)):
      i, j, n = (rng.randrange(len(damaged)) for _ in range(3))
      what = rng.choice([b'', b'\0', b'\xff', b'.', damaged[j : j + n % 30]])
      damaged[i : i + rng.choice([1, 1, len(what)])] = what
    pathlib.Path(path).write_bytes(damaged)
    try:
      safetensors_file.read(path)
    except errors.UserError as error:
      assert '\n' not in str(error)
      refused += 1
  assert 400 < refused < 500
