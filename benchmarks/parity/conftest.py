"""Finds the environments of other libraries, and real data; skips without.

  export BERT_JAX_TRANSFORMERS=PYTHON BERT_JAX_TENSORFLOW=PYTHON
  export BERT_JAX_TEST_DATA=FOLDER
  pytest benchmarks/parity -n 0 -s

The first is an interpreter with torch and transformers, the second one with
tensorflow. The folder has glue/, squad/, swag/, books/ and vocab/NAME/vocab.txt.
Every test is marked `parity`, and prints how far the two libraries are apart.
"""

import functools
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


def run(python, script, function, job, arrays):
  """Runs a function of a script in another environment; returns its arrays."""
  with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, 'job.json'), 'w', encoding='utf-8') as file:
      json.dump(job, file)
    np.savez(os.path.join(folder, 'arrays.npz'), **arrays)
    env = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    env['TRANSFORMERS_VERBOSITY'] = 'error'
    command = [python, str(HERE / script), function, folder]
    subprocess.run(command, check=True, env=env, cwd=folder)
    with np.load(os.path.join(folder, 'found.npz')) as found:
      return dict(found)


def find(library):
  """Returns `run` for the environment with a library."""
  variable = f'BERT_JAX_{library.upper()}'
  if not (python := os.environ.get(variable)):
    pytest.skip(f'{variable} names no interpreter with {library}')
  return functools.partial(run, python, f'in_{library}.py')


@pytest.fixture(scope='session')
def in_transformers():
  """Returns (function, job, arrays) -> arrays, in transformers' environment."""
  return find('transformers')


@pytest.fixture(scope='session')
def in_tensorflow():
  """Returns the same for in_tensorflow.py."""
  return find('tensorflow')


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
