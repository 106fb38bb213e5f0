"""Keeps memory that was freed, so that each update need not ask for it anew."""

import ctypes
import glob
import os

# Of the C library's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MOST = 2**31 - 1  # bytes; larger arrays are given back as before
_MOST_BEFORE = 2**25  # bytes; glibc before 2.35 refuses more
_ACCELERATORS = (
  '/dev/accel*',
  '/dev/vfio/[0-9]*',
  '/dev/nvidia[0-9]*',
  '/dev/kfd',
)


def keep_freed():
  """Makes the C library keep freed memory; call it before jax is imported.

  XLA allocates all intermediate results of a program at once, and frees them at
  the end. On a CPU it uses malloc, and glibc gives tens of megabytes back to
  the system, which clears every page again for the next update: 22,000 pages
  for BERT-Mini on short texts, a quarter of the update's time. The peak is as
  before, since the next update allocates as much. Threads have to share one
  arena, because other arenas are limited to 64 MB.

  It does nothing where there is an accelerator, since its arrays are elsewhere,
  and without glibc.
  """
  if has_accelerator():
    return
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (AttributeError, OSError, TypeError):
    return
  mallopt(_ARENA_MAX, 1)
  mallopt(_TRIM_THRESHOLD, _MOST)
  if not mallopt(_MMAP_THRESHOLD, _MOST):
    mallopt(_MMAP_THRESHOLD, _MOST_BEFORE)


def count_bytes() -> int:
  """Returns the bytes of the machine's memory."""
  return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')


def has_accelerator() -> bool:
  """Returns whether jax will find a TPU or a GPU, without asking it."""
  asked = os.environ.get('JAX_PLATFORMS', '')
  return asked != 'cpu' and any(map(glob.glob, _ACCELERATORS))
