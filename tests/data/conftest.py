"""Prepared data that several tests look at."""

import pytest

from bert_jax.data import prepare
from tests.data.preparation import ONE, make_recipe, write_corpus


@pytest.fixture(scope='session')
def corpus(tmp_path_factory):
  return write_corpus(tmp_path_factory.mktemp('text') / 'corpus.txt')


@pytest.fixture(scope='session')
def prepared(corpus, tmp_path_factory):
  output = str(tmp_path_factory.mktemp('data') / 'one')
  return output, prepare.prepare(make_recipe(corpus), output, ONE)
