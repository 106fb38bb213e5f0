"""Reads arrays of numbers that lie somewhere in a file."""

import os
import sys
import zlib
from typing import BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

from bert_jax import errors

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def check_memory(size: int):
  """Raises errors.UserError if a file is larger than the machine's memory.

  A sparse file may be, which takes no place on the disk.

  Args:
    size: of the file, bytes.
  """
  memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  if size > memory:
    raise errors.UserError(
      f'it takes {size:,} bytes, this machine has {memory:,} bytes of memory; '
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
  """Reads numbers, after a check that the file holds them all.

  Args:
    f: file opened for reading bytes.
    start: byte at which they begin.
    count: how many.
    dtype: of the numbers; BFLOAT16 becomes float32.
    order: of the bytes of a number, 'little' or 'big'.
    crc: CRC-32 of their bytes, or 0 for none.

  Returns:
    [count] array in the machine's own byte order.

  Raises:
    errors.UserError: for a file that ends before them or is larger than the
      machine's memory, and for a wrong CRC.
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
