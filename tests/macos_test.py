"""What runs on laptops uses nothing that macOS lacks, by mypy's stubs."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def find_lacking(*paths):
  """Returns mypy's lines on names that the standard library lacks on macOS."""
  found = subprocess.run(
    [sys.executable, '-m', 'mypy', '--platform=darwin', '--no-incremental']
    + ['--follow-imports=skip', '--ignore-missing-imports', '--config-file=']
    + ['--check-untyped-defs', *map(str, paths)],
    capture_output=True,
    text=True,
    check=False,
  )
  assert not found.stderr
  assert 'checked' in found.stdout or 'Success' in found.stdout
  lacking = re.compile(r'Module (".*" )?has no attribute')
  return [x for x in found.stdout.splitlines() if lacking.search(x)]


@pytest.mark.slow
def test_nothing_that_macos_lacks_is_used():
  assert not find_lacking(ROOT / 'bert_jax', ROOT / 'configs', ROOT / 'launch')
