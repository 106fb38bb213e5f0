"""Tests of reading tables: that no row and no column is lost."""

import gzip
import tracemalloc

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import splits, squad, table_files
from bert_jax.runtime import memory
from tests.finetuning.readers import examples_test


def read(tmp_path, content, name) -> table_files.Table:
  (tmp_path / name).write_text(content, encoding='utf-8', newline='')
  return table_files.read(str(tmp_path / name))


def test_a_field_of_csv_may_be_as_long_as_a_book(tmp_path):
  text = 'word, ' * 30_000
  table = read(tmp_path, f'text,label\n"{text}",a\n', 'long.csv')
  assert table.rows == [(2, {'text': text, 'label': 'a'})]


@pytest.mark.parametrize('name, comma', [('twice.csv', ','), ('a.tsv', '\t')])
def test_two_columns_of_one_name_are_refused(tmp_path, name, comma):
  content = '\ntext,text,label\nfirst,second,a\n'.replace(',', comma)
  with pytest.raises(errors.UserError, match="line 2 names .* columns 'text'"):
    read(tmp_path, content, name)


def test_columns_without_a_name_may_be_several(tmp_path):
  table = read(tmp_path, 'text,,\ncat,,\n', 'unnamed.csv')
  assert table.rows == [(2, {'text': 'cat', '': ''})]


@pytest.mark.parametrize('name', ['one.csv', 'one.tsv'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_an_empty_line_of_the_only_column_is_a_row(tmp_path, name, end):
  lines = ['text', 'first', '', 'third', '', '']
  table = read(tmp_path, end.join(lines), name)
  assert table.rows == [
    (2, {'text': 'first'}),
    (3, {'text': ''}),
    (4, {'text': 'third'}),
    (5, {'text': ''}),
  ]


@pytest.mark.parametrize('name, comma', [('two.csv', ','), ('two.tsv', '\t')])
def test_empty_lines_between_rows_of_columns_are_none(tmp_path, name, comma):
  content = 'text,label\n\ncat,a\n\n'.replace(',', comma)
  table = read(tmp_path, content, name)
  assert table.rows == [(3, {'text': 'cat', 'label': 'a'})]


@pytest.mark.parametrize(
  ('name', 'begin', 'more'),
  [
    ('rows.csv.gz', 'text,label\n', 'a,b\n'),
    ('rows.tsv.gz', 'text\tlabel\n', 'a\tb\n'),
    ('rows.jsonl.gz', '', '{"a": 1}\n'),
    ('line.csv.gz', 'text\n', 'aaaa'),
    ('quote.csv.gz', 'text\n"', 'a,\n\n'),
    ('line.tsv.gz', 'text\n', 'aaaa'),
    ('squad.json.gz', '', '[[[['),
  ],
)
def test_a_file_that_grows_beyond_the_memory_is_refused(
  tmp_path, monkeypatch, name, begin, more
):
  path = tmp_path / name
  content = begin.encode() + more.encode() * (8 << 20)
  path.write_bytes(gzip.compress(content, 1))
  monkeypatch.setattr(memory, 'count_bytes', lambda: 16 << 20)
  read = squad.read if 'squad' in name else table_files.read
  tracemalloc.start()
  with pytest.raises(errors.UserError, match=f'{name} .* memory') as caught:
    read(str(path))
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert '\n' not in str(caught.value) and peak < 64 << 20


def test_a_table_is_read_without_a_second_copy_of_it(tmp_path):
  line = 'word ' * 200
  path = tmp_path / 'long.tsv'
  path.write_text('text\tlabel\n' + f'{line}\ta\n' * 5000)
  table_files.read(str(path))
  tracemalloc.start()
  rows = table_files.read(str(path)).rows
  kept, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert len(rows) == 5000 and peak < 1.1 * kept


@pytest.mark.parametrize('end', ['\n', '\r\n', '\r'])
def test_lines_of_csv_may_end_in_any_way(tmp_path, end):
  table = read(tmp_path, f'a,b{end}1,"x{end}y"{end}2,z{end}', 'x.csv')
  assert table.rows == [
    (2, {'a': '1', 'b': f'x{end}y'}),
    (4, {'a': '2', 'b': 'z'}),
  ]


@pytest.mark.parametrize('name', ['x.csv', 'x.tsv', 'x.jsonl', 'x.csv.gz'])
def test_what_is_not_utf_8_is_named_by_its_line(tmp_path, name):
  path, content = tmp_path / name, b'a\n' * 20_000 + b'\xe9t\xe9\na\n'
  if name == 'x.jsonl':
    content = content.replace(b'a', b'{}')
  path.write_bytes(gzip.compress(content) if 'gz' in name else content)
  for read in (table_files.read, table_files.read_text):
    with pytest.raises(errors.UserError, match=r'in line 20001 \(byte 0xe9\)'):
      read(str(path))
  path.write_bytes(
    gzip.compress('a\nb\n'.encode('utf-16'))
    if 'gz' in name
    else 'a\nb\n'.encode('utf-16')
  )
  with pytest.raises(errors.UserError, match='is UTF-16; convert it'):
    table_files.read(str(path))


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


def read_tfds(name, **changes):
  source = examples_test.source(f'tfds:{name}', **changes)
  return examples_test.read_splits(source)


def test_a_glue_task_is_read_as_from_its_files(tfds_dir):
  found = read_tfds('rte', glue='rte')
  assert list(found) == ['train', 'dev', 'test']
  train = found['train']
  assert train.texts == [f'a{i}' for i in range(5)]  # not shuffled
  assert train.pairs == [f'é{i}' for i in range(5)]
  assert examples_test.list_labels(train) == [
    LABELS[i] for i in (1, 0, 1, 1, 0)
  ]
  assert [(x.label, x.id) for x in found['test'].units] == [
    ('', '0'),
    ('', '1'),
  ]


def test_labels_and_columns_are_those_of_glues_files(tfds_dir):
  found = read_tfds('mrpc', glue='mrpc')
  assert examples_test.list_labels(found['train']) == ['1', '0']
  assert found['train'].texts == ['a0', 'a1']
  assert examples_test.list_labels(read_tfds('stsb', glue='stsb')['train']) == [
    '0.5',
    '5.0',
  ]


def test_any_dataset_may_be_read_by_its_columns(tfds_dir):
  found = read_tfds('mrpc', text='sentence2')
  assert found['train'].texts == ['é0', 'é1']
  assert examples_test.list_labels(found['train']) == [
    'equivalent',
    'not_equivalent',
  ]
  path = 'tfds:mrpc:train[:1]'
  source = examples_test.source(f'train={path},dev=tfds:mrpc:validation')
  assert splits.find_files(source)['train'] == path
  assert len(table_files.read(path).rows) == 1


def test_what_is_not_there_is_said(tfds_dir):
  with pytest.raises(
    errors.UserError, match="no column 'body'; it has .* by data.text="
  ):
    read_tfds('rte', text='body')
  with pytest.raises(errors.UserError, match='is not prepared under'):
    read_tfds('no_such_set')
