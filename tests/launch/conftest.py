"""What all tests of launching share."""

import pytest

from launch import start


@pytest.fixture(autouse=True)
def _folders(tmp_path, monkeypatch):
  """Runs in the repository, and notes runs in a folder of the test's own."""
  monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
  monkeypatch.chdir(start.ROOT)
