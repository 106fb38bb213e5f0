"""Tests of the memory that predictions for a file need, without a run."""

import csv
import json
import tracemalloc

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import predict_files
from bert_jax.inference import source
from bert_jax.model import classifier
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
  assert measure(predict_files._write_rows, path, rows) < 0.5e6
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()
  assert len(lines) == 9999 + (kind != 'jsonl') and 'class 9998' in lines[-1]


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
  assert predict_files.predict(job) == 40
  return output


def test_tables_have_the_likeliest_of_what_jsonl_has(tmp_path, monkeypatch):
  with open(predict(tmp_path, 'out.jsonl'), encoding='utf-8') as file:
    expected = [json.loads(line) for line in file]
  assert all(len(row.pop('probabilities')) == CLASSES for row in expected)

  def refuse(*_):
    raise AssertionError('the logits of all rows and classes are kept')

  monkeypatch.setattr(predict_files.predictions, 'compute_logits', refuse)
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
    predict_files.predict(job)


def test_tags_are_not_written_into_a_table(tmp_path):
  model = make_model()
  model = model._replace(head=model.head._replace(task='tagging'))
  output = str(tmp_path / 'out.csv')
  job = predict_files.Job('', model, 'in.txt', output, (None, None), 32)
  with pytest.raises(
    errors.UserError, match='out.csv does not end in .conll, .txt; give'
  ):
    predict_files.predict(job)
