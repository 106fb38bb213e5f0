"""Tests of the files of a run, of samples and of rows that are held out."""

import collections
import importlib
import os

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import glue, splits
from bert_jax.runtime import storage
from tests.finetuning import made


def test_a_sample_of_a_file_sorted_by_class_has_all_classes():
  labels = np.repeat(['a', 'b', 'c'], 100)
  chosen = splits.take_sample(range(300), 30)
  assert len(chosen) == 30 and sorted(set(chosen)) == chosen.tolist()
  assert min(collections.Counter(labels[chosen]).values()) >= 5
  larger = splits.take_sample(range(300), 60)
  assert set(chosen) < set(larger)
  assert splits.take_sample(range(300), 0).tolist() == list(range(300))
  assert splits.take_sample(range(3), 9).tolist() == [0, 1, 2]


def test_a_sample_has_whole_groups_but_for_the_last():
  groups = np.repeat(np.arange(20), 5)
  sizes = collections.Counter(groups[splits.take_sample(groups, 32)])
  assert sorted(sizes.values()) == [2, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize('share', [0.1, 0.25, 0.5])
def test_as_large_a_share_of_each_class_is_held_out(share):
  rng = np.random.default_rng(0)
  labels = rng.permutation(np.repeat(['a', 'b', 'c'], [20, 80, 300]))
  out = splits.hold_out('x', share, range(400), labels)
  for label, count in collections.Counter(labels).items():
    assert abs(out[labels == label].sum() - share * count) <= 1
  again = splits.hold_out('x', share, range(400), labels)
  np.testing.assert_array_equal(out, again)


def test_numbers_of_all_sizes_are_held_out():
  numbers = np.random.default_rng(0).permutation(200) / 10
  out = splits.hold_out('x', 0.1, range(200), numbers)
  assert out.sum() == 20
  assert np.bincount((numbers[out] // 5).astype(int)).tolist() == [5, 5, 5, 5]


def test_groups_are_held_out_as_a_whole():
  groups = np.repeat(np.arange(10), [1, 9, 2, 8, 3, 7, 4, 6, 5, 5])
  out = splits.hold_out('x', 0.2, groups)
  assert len(set(groups[out])) == 2
  assert not set(groups[out]) & set(groups[~out])


def source(given, glue=''):
  c = made.make_config('', str(given), **{'finetuning.glue': glue})
  return splits.get_source(c)


def write(folder, *names):
  folder.mkdir(parents=True, exist_ok=True)
  for name in names:
    (folder / name).write_text('')


@pytest.mark.parametrize(
  'given, message',
  [
    ('.', 'has train.csv, train.tsv for train; na'),
    ('nowhere', 'exist; give a folder with train.tsv, .csv, .jsonl, .txt'),
    ('train=a.csv,dve=b.csv', "'dve=b.csv' is not SPLIT=FILE with one of"),
    ('train=a.csv,train=b.csv', 'each once'),
    ('dev=a.csv', 'has no training file'),
    ('train.csv', 'is one file; give a folder with train.* or train=FILE,dev'),
  ],
)
def test_an_input_without_one_training_file_is_refused(
  tmp_path, monkeypatch, given, message
):
  monkeypatch.chdir(tmp_path)
  write(tmp_path, 'train.csv', 'train.tsv')
  with pytest.raises(errors.UserError, match=message):
    splits.find_files(source(given))


def test_folders_may_be_in_a_bucket():
  names = ('train.tsv', 'dev_matched.tsv', '../diagnostic/diagnostic.tsv')
  for name in names:
    path = os.path.normpath(f'/splits_test/MNLI/{name}')
    storage.write(f'memory:/{path}', b'x')
  folder = 'memory://splits_test'
  assert splits.find_files(source(folder, glue='mnli')) == {
    'train': f'{folder}/MNLI/train.tsv',
    'dev': f'{folder}/MNLI/dev_matched.tsv',
    'diagnostic': f'{folder}/diagnostic/diagnostic.tsv',
  }
  assert splits.list_glue(folder) == ['mnli']
  found = splits.find_files(source(f'{folder}/MNLI'))
  assert found == {
    'train': f'{folder}/MNLI/train.tsv',
    'dev': f'{folder}/MNLI/dev_matched.tsv',
  }


def test_mnli_has_two_dev_sets_and_the_diagnostics(tmp_path):
  names = ('dev_matched', 'dev_mismatched', 'test_matched', 'train')
  write(tmp_path / 'MNLI', *(f'{name}.tsv' for name in names))
  write(tmp_path / 'diagnostic', 'diagnostic.tsv')
  found = splits.find_files(source(tmp_path, glue='mnli'))
  assert list(found) == [
    'train', 'dev', 'test', 'dev_mismatched', 'diagnostic'
  ]  # fmt: skip
  assert found['diagnostic'] == str(tmp_path / 'diagnostic' / 'diagnostic.tsv')


def test_a_task_like_those_of_glue_needs_a_row_in_the_table(
  tmp_path, monkeypatch
):
  labels = ('yes', 'maybe', 'no')
  row = glue.Glue('SNLI', 'premise', 'hypothesis', 'label', labels)
  monkeypatch.setitem(glue.TASKS, 'snli', row)
  write(tmp_path / 'SNLI', 'train.tsv', 'dev.tsv')
  found = splits.find_files(source(tmp_path, glue='snli'))
  assert list(found) == ['train', 'dev']
  assert splits.list_glue(str(tmp_path)) == ['snli']
  config = importlib.import_module('configs.glue').get_config('snli')
  assert config.finetuning.outputs == 3


@pytest.mark.parametrize(
  'split, names',
  [
    ('train', 'train.csv train.json ynat-v1.1_train.json ratings_train.txt'),
    ('train', 'germeval2018.training.txt multinli.train.ko.tsv sts-train.csv'),
    ('dev', 'dev.csv devel.tsv valid.jsonl validation.csv val.csv eval.csv'),
    ('dev', 'dev_matched.tsv validation_matched.jsonl snli_1.0_dev.jsonl'),
    ('dev', 'DEV.csv multinli_1.0_dev_matched.txt klue-sts-v1.1_dev.json'),
    ('dev', 'eng.testa.txt validate.csv'),
    ('train', 'ko_gsd-ud-train.conllu train.char.bmes train.bio'),
    ('test', 'test.csv.gz test_matched.tsv ratings_test.txt eng.testb.txt'),
    ('', 'dev_mismatched.tsv devil.csv train_dev.csv notes.txt train.parquet'),
  ],
)
def test_the_split_of_a_file_is_known_by_its_name(tmp_path, split, names):
  for i, name in enumerate(names.split()):
    folder = tmp_path / str(i)
    write(folder, name)
    found = splits._find_own_files(str(folder))
    assert found == ({split: str(folder / name)} if split else {})


def test_the_plain_name_wins_and_the_others_are_named(tmp_path):
  names = ('train.csv', 'train_old.csv', 'devel.csv', 'test.csv', 'test.xlsx')
  write(tmp_path, *names, '.hidden')
  found = splits.find_files(source(tmp_path))
  assert [os.path.basename(x) for x in found.values()] == [
    'train.csv', 'devel.csv', 'test.csv'
  ]  # fmt: skip
  assert splits.list_unread(source(tmp_path)) == ['test.xlsx', 'train_old.csv']
  assert splits.list_unread(source(f'train={tmp_path}/train.csv')) == []
  os.remove(tmp_path / 'train.csv')
  os.remove(tmp_path / 'train_old.csv')
  with pytest.raises(errors.UserError, match='no training file, only test.xls'):
    splits.find_files(source(tmp_path))


def test_an_unknown_task_of_glue_is_told_those_there_are():
  with pytest.raises(
    errors.UserError, match="glue='rtee' is not one of cola, "
  ):
    source('x', glue='rtee')
