"""Damaged entries in the cache of compiled programs."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.runtime import compile_cache


@pytest.fixture
def settings():
  """Afterwards, jax's settings of its cache are as before."""
  before = jax.config.jax_compilation_cache_dir
  seconds = jax.config.jax_persistent_cache_min_compile_time_secs
  yield
  jax.config.update('jax_compilation_cache_dir', before)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', seconds)
  compilation_cache.reset_cache()


@pytest.fixture
def folder(settings, tmp_path):
  """Turns the cache on in a folder."""
  jax.config.update('jax_compilation_cache_dir', str(tmp_path))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  compile_cache.use()
  return tmp_path


def compute():
  """Compiles a program, or finds it compiled; returns its result."""
  jax.clear_caches()
  return jax.jit(lambda x: jnp.sin(x) * 3)(jnp.arange(5.0)).tolist()


def read_all(folder):
  return {path: path.read_bytes() for path in sorted(folder.glob('*-cache'))}


def flip(raw):
  return raw[:200] + bytes([raw[200] ^ 4]) + raw[201:]


@pytest.mark.parametrize(
  'damage',
  [
    flip,
    lambda raw: raw[: len(raw) // 2],
    lambda raw: b'',
    lambda raw: raw + b'more',
    lambda raw: bytes(len(raw)),
  ],
)
def test_a_damaged_entry_is_made_again(folder, damage):
  expected = compute()
  whole = read_all(folder)
  assert any('lambda' in path.name for path in whole)
  for path, raw in whole.items():
    path.write_bytes(damage(raw))
  assert compute() == expected
  again = read_all(folder)
  assert all(again[path] != damage(raw) for path, raw in whole.items())


def test_an_entry_of_another_program_is_made_again(folder):
  expected = compute()
  whole = read_all(folder)
  assert len(whole) > 1
  exchanged = dict(zip(whole, reversed(whole.values()), strict=True))
  for path, raw in exchanged.items():
    path.write_bytes(raw)
  assert compute() == expected
  (path,) = [x for x in whole if 'lambda' in x.name]
  assert path.read_bytes() != exchanged[path]


def test_a_sound_entry_is_used(folder, monkeypatch):
  expected = compute()
  times = {path: os.stat(path).st_mtime_ns for path in read_all(folder)}
  monkeypatch.setattr(compile_cache.CheckedPath, 'write_bytes', None)
  assert compute() == expected
  assert {path: os.stat(path).st_mtime_ns for path in times} == times


def test_entries_without_checksums_are_left_to_other_programs(folder):
  compute()
  names = [path.name.replace('-sha256', '') for path in read_all(folder)]
  for name in names:  # as jax alone would name the same programs
    (folder / name).write_bytes(b'not ours')
  compute()
  assert {(folder / name).read_bytes() for name in names} == {b'not ours'}


def test_the_cache_may_have_a_limit(folder):
  jax.config.update('jax_compilation_cache_max_size', 6000)
  compilation_cache.reset_cache()
  try:
    for n in range(5):
      jax.jit(lambda x, n=n: jnp.cos(x) * n)(np.arange(5.0))
    assert 0 < sum(map(len, read_all(folder).values())) <= 6000
  finally:
    jax.config.update('jax_compilation_cache_max_size', -1)


def test_its_place_is_where_the_user_keeps_caches(
  settings, tmp_path, monkeypatch
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  jax.config.update('jax_compilation_cache_dir', None)
  compile_cache.use()
  assert jax.config.jax_compilation_cache_dir == (
    f'checked://{tmp_path}/bert_jax/xla'
  )


@pytest.mark.parametrize(
  ('home', 'said'),
  [('~', 'no home directory'), ('file/x', 'cannot write to .*Not a dir')],
)
def test_without_a_folder_nothing_is_kept(
  home, said, settings, tmp_path, monkeypatch, capsys
):
  (tmp_path / 'file').touch()
  monkeypatch.chdir(tmp_path)
  monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
  # expanduser returns ~ for a user without a home.
  monkeypatch.setattr(
    os.path, 'expanduser', lambda path: path.replace('~', home)
  )
  jax.config.update('jax_compilation_cache_dir', None)
  compile_cache.use()
  assert jax.config.jax_compilation_cache_dir is None
  line = f'compiled programs are not kept: .*{said}.*XDG_CACHE'
  assert re.match(line, capsys.readouterr().err)
  assert os.listdir() == ['file']
