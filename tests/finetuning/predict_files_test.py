"""Tests of the memory that predictions for a file need, without a run."""

import csv
import json
import tracemalloc

import numpy as np
import pytest

from bert_jax import errors, tasks
from bert_jax.finetuning import predict_files, predictions, row_task
from bert_jax.inference import source
from bert_jax.model import classifier
from bert_jax.predict import predict_texts
from tests import models
from tests.finetuning import made

CLASSES = 150


def measure(function, *args) -> int:
  tracemalloc.start()
  function(*args)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  return peak


@pytest.mark.parametrize('kind', ['csv', 'tsv', 'jsonl'])
def test_rows_are_written_one_at_a_time(tmp_path, kind):
  path = str(tmp_path / f'out.{kind}')
  rows = ({'prediction': f'class {i}', 'probability': 0.5} for i in range(9999))
  assert measure(row_task.write, path, rows) < 0.5e6
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()
  assert len(lines) == 9999 + (kind != 'jsonl') and 'class 9998' in lines[-1]


def test_cells_that_a_spreadsheet_would_run_are_made_texts(tmp_path):
  rows = [
    {'prediction': x, 'probability': 0.5}
    for x in ('=cmd|x', '+1', '-a', '@SUM(1)', '\tx', 'a=b', '')
  ]
  path = str(tmp_path / 'x.csv')
  for safe_cells, quote in ((False, ''), (True, "'")):
    row_task.write(path, iter(rows), None, safe_cells)
    with open(path, encoding='utf-8', newline='') as file:
      found = [row['prediction'] for row in csv.DictReader(file)]
    assert found[:5] == [quote + row['prediction'] for row in rows[:5]]
    assert found[5:] == ['a=b', '']
  path = str(tmp_path / 'x.tsv')
  row_task.write(path, iter([{'prediction': -0.5}]), None, True)
  assert (tmp_path / 'x.tsv').read_text() == 'prediction\n-0.5\n'


def make_model():
  """Returns a model that tells 150 classes apart."""
  kernel = np.linspace(-1, 1, 8 * CLASSES, dtype=np.float32)
  head = classifier.Head(
    kernel.reshape(8, CLASSES),
    np.zeros(CLASSES, np.float32),
    tuple(f'class {i}' for i in range(CLASSES)),
    16,
    ('text',),
  )
  params = models.make_params(made.BERT)
  return source.Source(
    params, made.BERT, True, models.TOKENIZER, None, '', head=head
  )


def predict(tmp_path, name):
  given = tmp_path / 'in.csv'
  given.write_text('text\n' + 'the cat\ndog\n' * 20)
  output = str(tmp_path / name)
  job = predict_files.Job(
    '', make_model(), str(given), output, (None, None), 32
  )
  assert predict_files.predict(job, tasks.SUPERVISED) == 40
  return output


def test_tables_have_the_likeliest_of_what_jsonl_has(tmp_path, monkeypatch):
  with open(predict(tmp_path, 'out.jsonl'), encoding='utf-8') as file:
    expected = [json.loads(line) for line in file]
  assert all(len(row.pop('probabilities')) == CLASSES for row in expected)

  def fill(split, kept, rows, found):
    assert 'logits' not in found, 'those of all rows and classes are kept'
    return filled(split, kept, rows, found)

  filled = predictions.fill
  monkeypatch.setattr(predictions, 'fill', fill)
  with open(predict(tmp_path, 'out.csv'), encoding='utf-8') as file:
    found = list(csv.DictReader(file))
  assert found == [
    {name: str(value) for name, value in row.items()} for row in expected
  ]


def test_a_missing_column_is_asked_for_by_the_flag(tmp_path):
  given = tmp_path / 'in.csv'
  given.write_text('words\nthe cat\n')
  job = predict_files.Job(
    '', make_model(), str(given), str(tmp_path / 'x.csv'), (None, None), 32
  )
  with pytest.raises(
    errors.UserError, match="no column 'text'; it has words; .* by --text="
  ):
    predict_files.predict(job, tasks.SUPERVISED)


def test_tags_are_not_written_into_a_table(tmp_path):
  model = make_model()
  model = model._replace(head=model.head._replace(task='tagging'))
  output = str(tmp_path / 'out.csv')
  job = predict_files.Job('', model, 'in.txt', output, (None, None), 32)
  with pytest.raises(
    errors.UserError, match='out.csv does not end in .conll, .txt; give'
  ):
    predict_files.predict(job, tasks.SUPERVISED)


def score(tmp_path, content, name='out.csv', **fields):
  given = tmp_path / 'in.csv'
  given.write_text(content)
  output = str(tmp_path / name)
  job = predict_files.Job(
    '', make_model(), str(given), output, (None, None), 32, **fields
  )
  predict_files.predict(job, tasks.SUPERVISED)
  return output


ROWS = 'id,text,label\n7,the cat,class 0\n8,dog,class 149\n,cats,class 0\n'


def test_columns_of_the_input_are_kept(tmp_path):
  with open(score(tmp_path, ROWS, keep=['text', 'id'])) as file:
    rows = list(csv.DictReader(file))
  assert list(rows[0]) == ['text', 'id', 'prediction', 'probability']
  assert [(x['id'], x['text']) for x in rows] == [
    ('7', 'the cat'), ('8', 'dog'), ('', 'cats')
  ]  # fmt: skip
  with open(score(tmp_path, ROWS, 'out.jsonl', keep=['all'])) as file:
    first = json.loads(file.readline())
  assert list(first)[:4] == ['id', 'text', 'label', 'prediction']


@pytest.mark.parametrize(
  'keep, message',
  [
    (['name'], "'name' is not a column of the input; .* has id, text, label"),
    (['prediction'], "'prediction' is written"),
  ],
)
def test_columns_that_cannot_be_kept_are_refused(tmp_path, keep, message):
  with pytest.raises(errors.UserError, match=message):
    score(tmp_path, ROWS, keep=keep)


def test_a_labelled_file_is_scored(tmp_path, capsys):
  output = score(tmp_path, ROWS, label='label')
  with open(output) as file:
    predicted = [row['prediction'] for row in csv.DictReader(file)]
  right = [x == y for x, y in zip(predicted, LABELS, strict=True)]
  found = made.read_json(tmp_path / 'out.scores.json')
  assert found['metrics']['accuracy'] == sum(right) / 3
  assert found['baseline']['accuracy'] == 2 / 3  # class 0 is commonest
  assert found['classes']['class 0']['rows'] == 2
  assert sum(sum(x.values()) for x in found['confusion'].values()) == 3
  assert 'in.csv accuracy ' in capsys.readouterr().out


LABELS = ['class 0', 'class 149', 'class 0']


@pytest.mark.parametrize(
  'column, message',
  [
    ('stars', "no column 'stars'; .* by --label="),
    ('id', 'without a label, the first in line 4'),
    ('text', "has the label 'the cat', which no training row has"),
  ],
)
def test_labels_that_cannot_be_scored_are_refused(tmp_path, column, message):
  with pytest.raises(errors.UserError, match=message):
    score(tmp_path, ROWS, label=column)
  assert not (tmp_path / 'out.csv').exists()


def test_python_gives_lists_and_gets_lists(tmp_path):
  texts = ['the cat', 'dog', '', 'cats']
  found = predict_texts(make_model(), texts)
  with open(score(tmp_path, 'text\n' + '\n'.join(texts), 'x.jsonl')) as file:
    rows = [json.loads(line) for line in file]
  assert found == rows[:4] and predict_texts(make_model(), []) == []
  pairs = predict_texts(make_model(), texts, ['dog'] * 4)
  assert len(pairs) == 4 and pairs != found
  with pytest.raises(errors.UserError, match='1 pairs for 4 texts; give one'):
    predict_texts(make_model(), texts, ['dog'])
  model = make_model()
  model = model._replace(head=model.head._replace(task='tagging'))
  with pytest.raises(errors.UserError, match='is a model for tagging, not for'):
    predict_texts(model, texts)
