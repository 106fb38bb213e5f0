"""What the machine has, and what jax is told of it."""

import os
import platform
import re
import sys
from unittest import mock

import jax
import pytest

from bert_jax.runtime import machine
from tests import processes

# Pages that the system clears for 100 MB, allocated, used and freed in a thread.
_COUNT = """
import ctypes, resource, threading
from bert_jax.runtime import machine
machine.keep_freed_memory()
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.free.argtypes = [ctypes.c_void_p]
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def use():
  before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
  memory = c.malloc(100_000_000)
  c.memset(memory, 1, 100_000_000)
  c.free(memory)
  return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
counts = []
thread = threading.Thread(target=lambda: counts.extend([use(), use()]))
thread.start()
thread.join()
print(*counts)
"""


def is_old():
  """Whether the C library keeps less than 100 MB, or nothing."""
  name, version = platform.libc_ver()
  return name != 'glibc' or tuple(map(int, version.split('.'))) < (2, 35)


@pytest.mark.skipif(is_old(), reason='the C library is not glibc 2.35 or newer')
def test_memory_is_not_cleared_again():
  first, second = processes.run_code(_COUNT).stdout.split()
  assert int(first) > 10_000 and int(second) < 100


def test_accelerators_are_found_by_their_devices(tmp_path, monkeypatch):
  monkeypatch.delenv('JAX_PLATFORMS', raising=False)
  monkeypatch.setattr(machine, '_ACCELERATORS', (f'{tmp_path}/accel*',))
  assert not machine.has_accelerator()
  (tmp_path / 'accel0').touch()
  assert machine.has_accelerator()
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  assert not machine.has_accelerator()


@pytest.mark.parametrize(
  ('compiler', 'accelerator', 'asked', 'chosen'),
  [
    ('libtpu', False, None, 'cpu'),
    ('jax_plugins.xla_cuda13', False, None, None),
    ('libtpu', True, None, None),
    ('libtpu', False, 'tpu', 'tpu'),
  ],
)
def test_a_compiler_looks_for_no_tpu_where_there_is_none(
  compiler, accelerator, asked, chosen, monkeypatch
):
  fake = mock.Mock()
  monkeypatch.setitem(sys.modules, 'jax', fake)
  monkeypatch.setattr(machine, 'has_accelerator', lambda: accelerator)
  monkeypatch.setattr(machine, 'is_installed', lambda name: name == compiler)
  with mock.patch.dict(os.environ):
    os.environ.pop('JAX_PLATFORMS', None)
    if asked:
      os.environ['JAX_PLATFORMS'] = asked
    machine.skip_absent_tpu()
    assert os.environ.get('JAX_PLATFORMS') == chosen
  expected = [mock.call('jax_platforms', 'cpu')] if chosen == 'cpu' else []
  assert fake.config.update.mock_calls == expected


def test_programs_are_kept_where_the_user_keeps_caches_if_that_can_be(
  tmp_path, monkeypatch, capsys
):
  before = jax.config.jax_compilation_cache_dir
  (tmp_path / 'file').touch()
  jax.config.update('jax_compilation_cache_dir', None)
  try:
    monkeypatch.setenv('XDG_CACHE_HOME', f'{tmp_path}/file/x')
    machine.keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
    line = 'compiled programs are not kept: .*Not a directory'
    assert re.match(line, capsys.readouterr().err)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    with monkeypatch.context() as m:  # root may write anywhere
      m.setattr(os, 'access', lambda *_: False)
      machine.keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
    assert 'not kept: [Errno 13] Permission' in capsys.readouterr().err
    machine.keep_programs()
    assert jax.config.jax_compilation_cache_dir == f'{tmp_path}/bert_jax/xla'
  finally:
    jax.config.update('jax_compilation_cache_dir', before)
