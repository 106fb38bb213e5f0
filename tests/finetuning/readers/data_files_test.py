"""Tests of finding the files of a fine-tuning run."""

import importlib

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import data_files, glue
from tests.finetuning import made


def source(given, glue=''):
  c = made.make_config('', str(given), **{'finetuning.glue': glue})
  return data_files.get_source(c)


def write(folder, *names):
  folder.mkdir()
  for name in names:
    (folder / name).write_text('')


@pytest.mark.parametrize(
  'given, message',
  [
    ('nowhere', 'does not exist; give a folder with train.csv'),
    (
      'train=a.csv,dve=b.csv',
      "'dve=b.csv' is not SPLIT=FILE with one of train",
    ),
    ('train=a.csv,train=b.csv', 'each once'),
    ('dev=a.csv', 'has no training file'),
  ],
)
def test_an_input_without_a_training_file_is_refused(given, message):
  with pytest.raises(errors.UserError, match=message):
    data_files.find_files(source(given))


def test_the_folder_may_be_that_of_the_task_or_of_glue(tmp_path):
  write(tmp_path / 'SST-2', 'train.tsv', 'test.tsv')
  for folder in (tmp_path, tmp_path / 'SST-2'):
    found = data_files.find_files(source(folder, glue='sst2'))
    assert list(found) == ['train', 'test']


def test_mnli_has_two_dev_sets_and_the_diagnostics(tmp_path):
  names = ('dev_matched', 'dev_mismatched', 'test_matched', 'train')
  write(tmp_path / 'MNLI', *(f'{name}.tsv' for name in names))
  write(tmp_path / 'diagnostic', 'diagnostic.tsv')
  found = data_files.find_files(source(tmp_path, glue='mnli'))
  assert list(found) == [
    'train', 'dev', 'dev_mismatched', 'test', 'diagnostic'
  ]  # fmt: skip
  assert found['diagnostic'] == str(tmp_path / 'diagnostic' / 'diagnostic.tsv')


def test_a_task_like_those_of_glue_needs_a_row_in_the_table(
  tmp_path, monkeypatch
):
  labels = ('yes', 'maybe', 'no')
  row = glue.Glue('SNLI', 'premise', 'hypothesis', 'label', labels)
  monkeypatch.setitem(glue.TASKS, 'snli', row)
  write(tmp_path / 'SNLI', 'train.tsv', 'dev.tsv')
  found = data_files.find_files(source(tmp_path, glue='snli'))
  assert list(found) == ['train', 'dev']
  assert data_files.list_glue(str(tmp_path)) == ['snli']
  config = importlib.import_module('configs.glue').get_config('snli')
  assert config.finetuning.outputs == 3


def test_an_unknown_task_of_glue_is_refused():
  with pytest.raises(errors.UserError, match="'snli' is not one of cola, sst2"):
    data_files.find_glue('snli')
  assert data_files.find_glue('mnli') is glue.TASKS['mnli']


def test_a_folder_of_ones_own_has_files_by_split(tmp_path):
  write(tmp_path / 'own', 'train.jsonl', 'dev.csv.gz', 'notes.txt', 'tests.csv')
  found = data_files.find_files(source(tmp_path / 'own'))
  assert found == {
    'train': f'{tmp_path}/own/train.jsonl',
    'dev': f'{tmp_path}/own/dev.csv.gz',
  }


def test_two_files_for_a_split_are_refused(tmp_path):
  write(tmp_path / 'own', 'train.csv', 'train.tsv')
  with pytest.raises(errors.UserError, match='has train.csv and train.tsv; na'):
    data_files.find_files(source(tmp_path / 'own'))
