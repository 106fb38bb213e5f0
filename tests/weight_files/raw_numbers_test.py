"""Numbers out of a file: byte orders, bfloat16, ends and checksums."""

import io
import zlib

import numpy as np
import pytest

from bert_jax.weight_files import raw_numbers
from tests.weight_files.hostile import refusal


@pytest.fixture
def file(tmp_path):
  """Returns a function that opens a file of the bytes that it is given."""
  opened = []

  def make(hexadecimal) -> io.BufferedIOBase:
    path = tmp_path / 'x'
    path.write_bytes(bytes.fromhex(hexadecimal))
    opened.append(open(path, 'rb'))
    return opened[-1]

  yield make
  for f in opened:
    f.close()


def test_little_and_big_endian(file):
  f = file('ff 0100 0200 ff')
  assert raw_numbers.read(f, 1, 2, np.int16).tolist() == [1, 2]
  found = raw_numbers.read(f, 1, 2, np.int16, 'big')
  assert found.tolist() == [256, 512]
  assert found.dtype.isnative


def test_bfloat16_is_the_upper_half_of_float32(file):
  f = file('803f 00c0 807f 80ff c07f 0080 0100')
  found = raw_numbers.read(f, 0, 7, raw_numbers.BFLOAT16)
  want = [1, -2, np.inf, -np.inf, np.nan, -0.0, 2.0**-133]
  np.testing.assert_array_equal(found, np.float32(want))
  assert np.signbit(found[5])
  big = file('3f80 c000')
  assert raw_numbers.read(big, 0, 2, raw_numbers.BFLOAT16, 'big').tolist() == [
    1,
    -2,
  ]


def test_none_at_all_and_the_last_ones(file):
  f = file('0100 0200')
  assert raw_numbers.read(f, 4, 0, np.int16).tolist() == []
  assert raw_numbers.read(f, 2, 1, np.int16).tolist() == [2]
  message = refusal(raw_numbers.read, f, 2, 2, np.int16)
  assert 'it ends at byte 4, before its numbers do at byte 6' in message


def test_checksum(file):
  f = file('0100 0200')
  crc = zlib.crc32(bytes([1, 0, 2, 0]))
  assert raw_numbers.read(f, 0, 2, np.int16, crc=crc).tolist() == [1, 2]
  message = refusal(raw_numbers.read, f, 0, 2, np.int16, 'little', crc ^ 1)
  assert 'bytes 0 to 4 are damaged' in message
