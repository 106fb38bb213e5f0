"""Finds the environment of transformers, and real data; skips without.

  export BERT_JAX_TRANSFORMERS=PYTHON BERT_JAX_TEST_DATA=FOLDER
  pytest benchmarks/parity -n 0 -s

PYTHON is an interpreter with torch and transformers. The folder has glue/,
squad/, swag/, books/100_english_novels/ and vocab/NAME/vocab.txt.
Every test is marked `parity`, and prints how far the two libraries are apart.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import pytest

os.environ['JAX_PLATFORMS'] = 'cpu'
HERE = pathlib.Path(__file__).resolve().parent


def pytest_collection_modifyitems(items):
  for item in items:
    if HERE in item.path.parents:
      item.add_marker(pytest.mark.parity)


@pytest.fixture(scope='session')
def in_transformers():
  """Returns (function, job, arrays) -> arrays, of in_transformers.py."""
  python = os.environ.get('BERT_JAX_TRANSFORMERS')
  if not python:
    pytest.skip('BERT_JAX_TRANSFORMERS names no interpreter with transformers')

  def run(function, job, arrays):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, 'job.json')
      path.write_text(json.dumps(job), 'utf-8')
      np.savez(os.path.join(folder, 'arrays.npz'), **arrays)
      env = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
      env['TRANSFORMERS_VERBOSITY'] = 'error'
      command = [python, str(HERE / 'in_transformers.py'), function, folder]
      subprocess.run(command, check=True, env=env, cwd=folder)
      with np.load(os.path.join(folder, 'found.npz')) as found:
        return dict(found)

  return run


@pytest.fixture(scope='session')
def real():
  """Returns (path below the folder with real data) -> the path."""

  def get(*parts):
    root = os.environ.get('BERT_JAX_TEST_DATA')
    if not root:
      pytest.skip('BERT_JAX_TEST_DATA names no folder with real data')
    path = pathlib.Path(root, *parts)
    if not path.exists():
      pytest.skip(f'there is no {path}')
    return str(path)

  return get
