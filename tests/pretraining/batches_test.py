"""Tests of batches made in parts, as many hosts do."""

import numpy as np
import pytest

from bert_jax.data import prepare
from bert_jax.pretraining import batches
from bert_jax.train import task
from tests.data import preparation
from tests.pretraining import pretrain_test

ROWS = np.array([3, 4, 9, 15])  # of 16; a host's rows need not be neighbours
CASES = {
  'mlm': {},
  'static': {'objective__static_masks': True},
  'packed': {'data__pack': 3},
  'ltr': {'objective__kind': 'ltr', 'objective__nsp': False},
  'rtl, packed': {
    'objective__kind': 'rtl',
    'objective__nsp': False,
    'data__pack': 3,
  },
}


@pytest.fixture(scope='module')
def directories(tmp_path_factory):
  root = tmp_path_factory.mktemp('batches')
  path = preparation.write_corpus(root / 'corpus.txt')
  found = {pack: str(root / f'data{pack}') for pack in (1, 3)}
  for pack, directory in found.items():
    recipe = preparation.make_recipe(path, pack=pack, short_seq_prob=0.5)
    prepare.prepare(recipe, directory, prepare.local_runner(1))
  return found


@pytest.mark.parametrize('changes', CASES.values(), ids=CASES)
def test_rows_are_those_of_the_global_batch(directories, changes):
  c = pretrain_test.make_config(**changes)
  made = batches.Batches(c, directories[c.data.pack])
  phase = task.list_phases(c)[0]
  # Step 20 is in another epoch; held-out batch 3 ends with absent rows.
  for make, number in ((made.train_batch, 20), (made.eval_batch, 3)):
    whole, part = make(phase, number), make(phase, number, ROWS)
    assert {*whole} == {*part}
    for name in whole:
      np.testing.assert_array_equal(part[name], whole[name][ROWS])
