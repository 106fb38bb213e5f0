"""Prepared data that the tests of pre-training share."""

import pytest

from bert_jax.data import prepare
from tests.data import preparation


@pytest.fixture(scope='session')
def directories(tmp_path_factory):
  """Returns {pairs per row: data}, of lengths 32 and 64."""
  root = tmp_path_factory.mktemp('prepared')
  path = preparation.write_corpus(root / 'corpus.txt')
  found = {pack: str(root / f'data{pack}') for pack in (1, 3)}
  for pack, directory in found.items():
    # Short targets, so that some pairs are short enough to share a row.
    recipe = preparation.make_recipe(path, pack=pack, short_seq_prob=0.5)
    prepare.prepare(recipe, directory, prepare.local_runner(0))
  return found


@pytest.fixture(scope='session')
def directory(directories):
  return directories[1]
