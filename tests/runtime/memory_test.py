"""Tests of keeping freed memory."""

import os
import platform

import pytest

from bert_jax.runtime import memory
from tests import processes

# Pages that the system clears for 100 MB, allocated, used and freed in a thread.
_COUNT = """
import ctypes, resource, threading
from bert_jax.runtime import memory
{}
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.free.argtypes = [ctypes.c_void_p]
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def use():
  before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
  found = c.malloc(100_000_000)
  c.memset(found, 1, 100_000_000)
  c.free(found)
  return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
counts = []
thread = threading.Thread(target=lambda: counts.extend([use(), use()]))
thread.start()
thread.join()
print(counts[1])
"""


def count_pages(statement):
  env = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  return int(processes.run_code(_COUNT.format(statement), env=env).stdout)


def is_old():
  """Whether the C library keeps less than 100 MB, or nothing."""
  name, version = platform.libc_ver()
  return name != 'glibc' or tuple(map(int, version.split('.'))) < (2, 35)


@pytest.mark.skipif(is_old(), reason='the C library is not glibc 2.35 or newer')
def test_memory_is_not_cleared_again():
  assert count_pages('') > 10_000
  assert count_pages('memory.keep_freed()') < 100


def test_accelerators_are_found_by_their_devices(tmp_path, monkeypatch):
  monkeypatch.delenv('JAX_PLATFORMS', raising=False)
  monkeypatch.setattr(memory, '_ACCELERATORS', (f'{tmp_path}/accel*',))
  assert not memory.has_accelerator()
  (tmp_path / 'accel0').touch()
  assert memory.has_accelerator()
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  assert not memory.has_accelerator()
