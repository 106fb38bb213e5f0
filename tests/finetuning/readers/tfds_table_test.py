"""Tests of reading TFDS datasets, written here, without TensorFlow."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import data_files, examples, table_files
from tests.finetuning.readers import examples_test

LABELS = 'entailment', 'not_entailment'


def write(folder, name, features, splits):
  """Writes a dataset, whose splits are {name: rows}."""
  tfds = pytest.importorskip('tensorflow_datasets')

  def describe(self):
    found = tfds.features.FeaturesDict(features(tfds))
    return tfds.core.DatasetInfo(builder=self, features=found)

  def generate(self, manager):
    del self, manager
    return {split: iter(enumerate(rows)) for split, rows in splits.items()}

  builder = type(
    name.capitalize(),  # which names the dataset
    (tfds.core.GeneratorBasedBuilder,),
    {
      'VERSION': tfds.core.Version('1.0.0'),
      '_info': describe,
      '_split_generators': generate,
      '_generate_examples': None,
    },
  )
  builder(
    data_dir=str(folder), file_format='array_record'
  ).download_and_prepare()


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('tfds')

  def pairs(first, second, labels):
    def features(tfds):
      text = tfds.features.Text()
      label = tfds.features.ClassLabel(names=labels) if labels else np.float32
      return {first: text, second: text, 'label': label, 'idx': np.int32}

    return features

  def rows(first, second, labels):
    return [
      {first: f'a{i}', second: f'é{i}', 'label': label, 'idx': i}
      for i, label in enumerate(labels)
    ]

  names = 'sentence1', 'sentence2'
  made = {
    'rte': (pairs(*names, LABELS), names, ([1, 0, 1, 1, 0], [0, 1], [-1, -1])),
    'mrpc': (
      pairs(*names, ('not_equivalent', 'equivalent')),
      names,
      ([1, 0], [1], [-1]),
    ),
    'stsb': (pairs(*names, None), names, ([0.5, 5.0], [2.5], [-1.0])),
  }
  for name, (features, columns, labels) in made.items():
    splits = zip(('train', 'validation', 'test'), labels, strict=True)
    write(folder, name, features, {k: rows(*columns, x) for k, x in splits})
  return str(folder)


@pytest.fixture
def tfds_dir(data_dir, monkeypatch):
  import tensorflow_datasets as tfds

  monkeypatch.setattr(tfds.core.constants, 'DATA_DIR', data_dir)
  monkeypatch.setenv('TFDS_DATA_DIR', data_dir)


def read(name, **changes):
  source = examples_test.source(f'tfds:{name}', **changes)
  return examples.read_splits(source)


def test_a_glue_task_is_read_as_from_its_files(tfds_dir):
  found = read('rte', glue='rte')
  assert list(found) == ['train', 'dev', 'test']
  train = found['train']
  assert train.texts == [f'a{i}' for i in range(5)]  # not shuffled
  assert train.pairs == [f'é{i}' for i in range(5)]
  assert train.labels == [LABELS[i] for i in (1, 0, 1, 1, 0)]
  assert found['test'].labels is None and found['test'].ids == ['0', '1']


def test_labels_and_columns_are_those_of_glues_files(tfds_dir):
  found = read('mrpc', glue='mrpc')
  assert found['train'].labels == ['1', '0']
  assert found['train'].texts == ['a0', 'a1']
  assert read('stsb', glue='stsb')['train'].labels == ['0.5', '5.0']


def test_any_dataset_may_be_read_by_its_columns(tfds_dir):
  found = read('mrpc', text='sentence2')
  assert found['train'].texts == ['é0', 'é1']
  assert found['train'].labels == ['equivalent', 'not_equivalent']
  path = 'tfds:mrpc:train[:1]'
  source = examples_test.source(f'train={path},dev=tfds:mrpc:validation')
  assert data_files.find_files(source)['train'] == path
  assert len(table_files.read(path).rows) == 1


def test_what_is_not_there_is_said(tfds_dir):
  with pytest.raises(
    errors.UserError, match="no column 'body'; it has .* by data.text="
  ):
    read('rte', text='body')
  with pytest.raises(errors.UserError, match='is not prepared under'):
    read('no_such_set')
