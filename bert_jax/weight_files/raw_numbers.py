"""Reads arrays of numbers that lie somewhere in a file."""

import os
import zlib

import numpy as np

from bert_jax import errors

# numpy has no bfloat16: the upper half of a float32.
BFLOAT16 = 'bfloat16'


def get_item_size(dtype: str) -> int:
  """Returns bytes per number of a dtype, a numpy name or BFLOAT16."""
  return 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize


def read(f, start: int, count: int, dtype: str, order='<', crc=0) -> np.ndarray:
  """Reads numbers, after a check that the file holds them all.

  Args:
    f: file opened for reading bytes.
    start: byte at which they begin.
    count: how many.
    dtype: a numpy name, or BFLOAT16 which becomes float32.
    order: '<' for little-endian, '>' for big-endian.
    crc: CRC-32 of their bytes, or 0 for none.

  Returns:
    [count] array in the machine's own byte order.

  Raises:
    errors.UserError: for a file that ends before them or is larger than the
      machine's memory (a sparse file may be), and for a wrong CRC.
  """
  f.seek(0, 2)
  size, end = f.tell(), start + count * get_item_size(dtype)
  if end > size:
    raise errors.UserError(
      f'it ends at byte {size:,}, before its numbers do at byte {end:,}; '
      'copy it again.'
    )
  memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  if size > memory:
    raise errors.UserError(
      f'it takes {size:,} bytes, this machine has {memory:,} bytes of memory; '
      'use a larger one.'
    )
  f.seek(start)
  raw = 'u2' if dtype == BFLOAT16 else dtype
  numbers = np.fromfile(f, np.dtype(raw).newbyteorder(order), count)
  if crc and zlib.crc32(numbers.view(np.uint8)) != crc:
    raise errors.UserError(
      f'bytes {start:,} to {end:,} are damaged, their CRC is not the one '
      'noted; copy it again.'
    )
  if dtype == BFLOAT16:
    return (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
  return numbers.astype(raw, copy=False)
