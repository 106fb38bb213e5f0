"""Tests of the folder with the encoded data of a run."""

import dataclasses

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.finetuning import classes, task_data
from bert_jax.tokenization.tokenizer import AddedWord
from tests import models
from tests.finetuning import made


def write(root, **changes):
  """Writes the data of a run, which has just its train and dev files."""
  c = made.configure(root, **changes)
  (root / 'texts' / 'test.csv').unlink(missing_ok=True)
  task_data.write(classes.TASK, c, str(root / 'data'), models.TOKENIZER)
  return c


def test_what_is_written_is_read_and_an_earlier_folder_replaced(tmp_path):
  write(tmp_path, **{'data.max_documents': 8})
  c = write(tmp_path)
  found = task_data.read(classes.TASK, str(tmp_path / 'data'))
  expected = classes.TASK.read(c, models.TOKENIZER)
  assert list(found.splits) == ['train', 'dev']
  for name, split in expected.splits.items():
    np.testing.assert_array_equal(found.splits[name].labels, split.labels)
    np.testing.assert_array_equal(
      found.splits[name].encoded.ids, split.encoded.ids
    )
  assert found.labels == ('cat', 'dog') and found.pad_id == 0
  assert found.directory == str(tmp_path / 'data')
  assert found.manifest['recipe']['input'] == c.data.input
  assert found.manifest['recipe']['max_length'] == 8  # that of the longest row
  names = {path.name for path in (tmp_path / 'data').iterdir()}
  assert names == {'dev.npz', 'manifest.json', 'train.npz', 'vocab.txt'}
  tokenizer = manifest_file.load_tokenizer(str(tmp_path / 'data'))
  assert tokenizer == models.TOKENIZER


def test_added_words_stay_whole_in_data_and_in_what_is_read_from_them(tmp_path):
  added = (AddedWord('dog', 7, True, False, False, True),)
  words = dataclasses.replace(models.TOKENIZER, added=added)
  c = made.configure(tmp_path)
  rows = ['dogs,a', 'catdog,b'] * 9
  made.write_csv(tmp_path / 'texts', train=rows, dev=rows)
  task_data.write(classes.TASK, c, str(tmp_path / 'data'), words)
  data = task_data.read(classes.TASK, str(tmp_path / 'data'))
  assert manifest_file.load_tokenizer(data.directory) == words
  assert words.tokens(data.splits['train'].encoded.ids[:8]) == (
    '[CLS] dog [UNK] [SEP] [CLS] cat dog [SEP]'.split()
  )
  facts = task_data.list_facts(c, data, ())
  assert facts['data']['recipe']['added'] == [list(added[0])]
  lines = classes.TASK.describe_data(data.manifest)
  assert ' tokens, 25.00% of the tokens unknown (' in lines[0]


def test_data_in_a_bucket_are_read_from_a_copy(tmp_path, remote, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  c = write(tmp_path)
  for most in (8, 0):  # the earlier ones are replaced
    c.data.max_documents = most
    task_data.write(classes.TASK, c, f'{remote}/data', models.TOKENIZER)
  found = task_data.read(classes.TASK, f'{remote}/data')
  expected = task_data.read(classes.TASK, str(tmp_path / 'data'))
  assert found.manifest == expected.manifest
  for name, split in expected.splits.items():
    np.testing.assert_array_equal(
      found.splits[name].encoded.ids, split.encoded.ids
    )
  tokenizer = manifest_file.load_tokenizer(found.directory)
  assert tokenizer == models.TOKENIZER


@pytest.mark.parametrize('name', ['vocab.txt', 'train.npz'])
def test_a_changed_file_is_refused(tmp_path, name):
  write(tmp_path)
  with open(tmp_path / 'data' / name, 'ab') as file:
    file.write(b'more')
  with pytest.raises(errors.UserError, match=f'{name} is not the file that'):
    task_data.read(classes.TASK, str(tmp_path / 'data'))


def test_a_folder_that_is_no_data_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match='is not prepared data'):
    task_data.read(classes.TASK, str(tmp_path))
