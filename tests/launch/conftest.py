"""What all tests of launching share."""

import functools

import pytest

from launch import archive

_make = archive.make
_pack = functools.cache(_make)  # takes a second


@pytest.fixture(autouse=True)
def _folders(tmp_path, monkeypatch):
  """Runs in the repository, and notes runs in a folder of the test's own."""
  monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
  monkeypatch.chdir(archive.ROOT)
  monkeypatch.setattr(
    archive, 'make', lambda *root: _make(*root) if root else _pack()
  )
