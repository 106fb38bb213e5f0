"""Reads arrays of numbers at a position of a file."""

import os
import sys
import zlib
from typing import BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

from bert_jax import errors
from bert_jax.runtime import memory

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def check_memory(size: int):
  """Raises errors.UserError if a file is larger than the machine's memory.

  A sparse file can be, although it takes no space on the disk.

  Args:
    size: size of the file in bytes.
  """
  most = memory.count_bytes()
  if size > most:
    raise errors.UserError(
      f'it takes {size:,} bytes, this machine has {most:,} bytes of memory; '
      'use a larger one.'
    )


def read(
  f: BinaryIO,
  start: int,
  count: int,
  dtype: npt.DTypeLike,
  order: str = 'little',
  crc: int = 0,
) -> np.ndarray:
  """Reads numbers, after checking that the file has them all.

  Args:
    f: file opened for reading bytes.
    start: offset of the first number in bytes.
    count: number of numbers.
    dtype: type of the numbers; BFLOAT16 is converted to float32.
    order: byte order, 'little' or 'big'.
    crc: CRC-32 of their bytes, 0 for no check.

  Returns:
    [count] array in the machine's byte order.

  Raises:
    errors.UserError: if the file is too short or larger than the machine's
      memory, or the CRC is wrong.
  """
  dtype = np.dtype(dtype)
  size, end = f.seek(0, os.SEEK_END), start + count * dtype.itemsize
  if end > size:
    raise errors.UserError(
      f'it ends at byte {size:,}, before its numbers do at byte {end:,}; '
      'copy it again.'
    )
  check_memory(size)
  f.seek(start)
  # As unsigned integers: ml_dtypes 0.5 does not swap the bytes of bfloat16.
  numbers = np.fromfile(f, f'u{dtype.itemsize}', count)
  if crc and zlib.crc32(numbers.view(np.uint8)) != crc:
    raise errors.UserError(
      f'bytes {start:,} to {end:,} are damaged, their CRC is not the one '
      'noted; copy it again.'
    )
  if order != sys.byteorder:
    numbers = numbers.byteswap()
  numbers = numbers.view(dtype)
  return numbers.astype(np.float32) if dtype == BFLOAT16 else numbers
