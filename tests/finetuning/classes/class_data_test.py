"""Tests of the data of a fine-tuning run."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import completion, task_data
from bert_jax.finetuning.classes import class_data
from tests import models
from tests.finetuning import made


def write(tmp_path, rows, **changes):
  """Writes the data of rows of training texts; returns its folder."""
  texts = tmp_path / 'texts'
  texts.mkdir()
  content = 'text,label\n' + ''.join(f'{row}\n' for row in rows)
  (texts / 'train.csv').write_text(content)
  (texts / 'dev.csv').write_text('text,label\ncat,a\n')
  source = made.write_source(tmp_path / 'source')
  c = made.make_config(source, str(texts), **changes)
  c = completion.complete(class_data.make, c, str(tmp_path / 'run'))
  task_data.write(
    class_data.FORMAT, c, str(tmp_path / 'data'), models.TOKENIZER
  )
  return str(tmp_path / 'data')


def read(folder):
  return task_data.read(class_data.FORMAT, folder)


def test_what_is_written_is_read(tmp_path):
  found = read(write(tmp_path, ['the cat,a', 'dogs,b', 'cat,a']))
  train = found.splits['train']
  # [PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s
  rows = np.split(train.encoded.ids, train.encoded.ends[:-1])
  assert [x.tolist() for x in rows] == [[2, 5, 6, 3], [2, 7, 8, 3], [2, 6, 3]]
  assert train.labels.tolist() == [0, 1, 0] and train.labels.dtype == np.int32
  assert found.labels == ('a', 'b') and found.pad_id == 0
  facts = found.manifest['splits']['train']
  assert (facts['rows'], facts['tokens'], facts['longest']) == (3, 11, 4)
  assert facts['labels'] == {'a': 2, 'b': 1}


def test_a_host_that_reads_what_another_wrote_keeps_no_texts(tmp_path):
  folder = write(tmp_path, ['the cat,a', 'dogs,b'])
  c = made.make_config(str(tmp_path / 'source'), str(tmp_path / 'texts'))
  class_data.make(c, models.TOKENIZER)  # to complete its config
  assert class_data._read.cache_info().currsize == 1
  read(folder)
  assert class_data._read.cache_info().currsize == 0


def test_numbers_are_kept_as_numbers(tmp_path):
  (tmp_path / 'dev.csv').write_text('text,label\ncat,0.5\n')
  (tmp_path / 'all.csv').write_text('text,label\ncat,1.5\ndog,-2\n')
  c = made.make_config(
    made.write_source(tmp_path / 'source'),
    f'train={tmp_path}/all.csv,dev={tmp_path}/dev.csv',
    **{'finetuning.regression': True},
  )
  data = class_data.make(c, models.TOKENIZER)
  assert data.splits['train'].labels.tolist() == [1.5, -2]
  assert data.splits['train'].labels.dtype == np.float32
  assert data.labels == ()
  assert 'labels from -2.0 to 1.5' in class_data.describe(data.manifest)[0]


def test_rows_without_text_are_kept_and_said(tmp_path):
  found = read(write(tmp_path, ['the cat,a', ',b', '  ,b']))
  train = found.splits['train']
  assert np.diff(train.encoded.ends).tolist() == [2, 2]  # [CLS] [SEP]
  lines = class_data.describe(found.manifest)
  assert lines[0].startswith(
    'train: 3 rows, labels a (1), b (2), longest 4 tokens ('
  )
  assert lines[1].startswith('WARNING: 2 rows of ')
  assert lines[1].endswith('kept as [CLS] [SEP]; the first in line 3')


def test_dev_rows_that_are_held_out_of_the_training_file_are_said_to_be(
  tmp_path,
):
  texts = made.write_texts(tmp_path / 'texts', dev=False)
  c = made.make_config(made.write_source(tmp_path / 'source'), texts)
  data = class_data.make(c, models.TOKENIZER)
  train, _, dev = class_data.describe(data.manifest)
  assert train.endswith(f'({texts}/train.csv)')
  assert dev.endswith(f'(held out of {texts}/train.csv)')


def test_dev_rows_that_are_training_rows_are_said(tmp_path, capsys):
  c = made.make_config(
    made.write_source(tmp_path / 'source'),
    made.write_texts(tmp_path / 'texts'),
  )
  run = str(tmp_path / 'run')
  c = completion.complete(class_data.make, c, run)
  task_data.prepare(class_data.FORMAT, c, run)
  task_data.open_data(class_data.FORMAT, c, run)
  assert (
    'WARNING: 10 of the rows of dev are also training rows, the first is line 2 '
    f'of {tmp_path}/texts/dev.csv\n'
  ) in capsys.readouterr().out


def test_truncated_rows_are_counted(tmp_path):
  found = read(write(tmp_path, ['cat ' * 20 + ',a', 'dog,b']))
  facts = found.manifest['splits']['train']
  assert (facts['longest'], facts['truncated']) == (16, 1)


def test_a_run_that_has_begun_refuses_changed_files_not_deleted_ones(tmp_path):
  write(tmp_path, ['the cat,a', 'dogs,b'])
  c = made.make_config(str(tmp_path / 'source'), str(tmp_path / 'texts'))
  c = completion.complete(class_data.make, c, str(tmp_path / 'run'))
  run, train = str(tmp_path / 'run'), tmp_path / 'texts' / 'train.csv'
  task_data.prepare(class_data.FORMAT, c, run)
  (tmp_path / 'run' / 'checkpoints' / '5').mkdir(parents=True)
  task_data.prepare(class_data.FORMAT, c, run)
  old = train.read_text()
  train.write_text(old.replace('cat,a', 'cat,b'))  # as many bytes as before
  with pytest.raises(errors.UserError, match=r'has changed .*train.csv\)'):
    task_data.prepare(class_data.FORMAT, c, run)
  train.unlink()
  task_data.prepare(class_data.FORMAT, c, run)
