"""Tests of the folder with the encoded data of a run."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import manifest as manifest_lib
from bert_jax.finetuning import store
from tests import models
from tests.finetuning import made

SPLITS = {'train': {'ids': np.arange(3)}, 'dev': {'labels': np.ones(2)}}


def write(folder, splits=SPLITS):
  c = made.make_config('', 'x.csv')
  about = {'splits': dict.fromkeys(splits, {}), 'labels': ['a']}
  store.write(c, str(folder), models.TOKENIZER, splits, about)


def test_what_is_written_is_read_and_an_earlier_folder_replaced(tmp_path):
  write(tmp_path / 'data', {'train': {}, 'test': {}})
  write(tmp_path / 'data')
  splits, manifest = store.read(str(tmp_path / 'data'))
  assert list(splits) == ['train', 'dev']
  np.testing.assert_array_equal(splits['train']['ids'], np.arange(3))
  assert manifest['labels'] == ['a']
  assert manifest['recipe']['input'] == 'x.csv'
  names = {path.name for path in (tmp_path / 'data').iterdir()}
  assert names == {'dev.npz', 'manifest.json', 'train.npz', 'vocab.txt'}
  found = manifest_lib.load_tokenizer(str(tmp_path / 'data'))
  assert found == models.TOKENIZER


@pytest.mark.parametrize('name', ['vocab.txt', 'train.npz'])
def test_a_changed_file_is_refused(tmp_path, name):
  write(tmp_path / 'data')
  with open(tmp_path / 'data' / name, 'ab') as file:
    file.write(b'more')
  with pytest.raises(errors.UserError, match=f'{name} is not the file that'):
    store.read(str(tmp_path / 'data'))


def test_a_folder_that_is_no_data_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match='is not prepared data'):
    store.read(str(tmp_path))
