"""Where compiled programs are kept."""

import os
import re

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.runtime import compile_cache


@pytest.fixture
def settings():
  """Afterwards, jax's settings of its cache are as before."""
  before = jax.config.jax_compilation_cache_dir
  yield
  jax.config.update('jax_compilation_cache_dir', before)
  compilation_cache.reset_cache()


def test_its_place_is_where_the_user_keeps_caches(
  settings, tmp_path, monkeypatch
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  jax.config.update('jax_compilation_cache_dir', None)
  compile_cache.use()
  assert jax.config.jax_compilation_cache_dir == (f'{tmp_path}/bert_jax/xla')


@pytest.mark.parametrize(
  ('home', 'said'),
  [('~', 'no home'), ('file/x', 'Not a directory')],
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
  line = f'compiled programs are not kept: .*{said}'
  assert re.match(line, capsys.readouterr().err)
  assert os.listdir() == ['file']
