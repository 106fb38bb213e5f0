"""Tests of predictions for rows of different lengths, and for files."""

import csv
import json

import jax
import numpy as np
import pytest

from bert_jax import errors, tasks
from bert_jax.finetuning import classes, encode, predictions
from bert_jax.inference import source
from bert_jax.model import classifier
from bert_jax.trained import Model
from tests import models
from tests.finetuning import made

CLASSES = 150


def make_model(count=CLASSES, bias=0.0, **fields):
  """Returns a model that tells some classes apart."""
  kernel = np.linspace(-1, 1, 8 * count, dtype=np.float32).reshape(8, count)
  bias = np.broadcast_to(bias, count).astype(np.float32)
  labels = tuple(f'class {i}' for i in range(count))
  head = classifier.Head(kernel, bias, labels, 16, ('text',), **fields)
  params = models.make_params(made.BERT)
  return source.Source(params, made.BERT, models.TOKENIZER, head=head)


def predict_rows(model, whole=True):
  """Returns (rows of different lengths, what is kept of their predictions)."""
  texts = ['the ' * n + 'cat' for n in (12, 0, 5, 1, 9)]
  split = encode.Rows(made.encode_rows(texts, None, 16), None)
  return split, predictions.predict_rows(
    classes.CLASSES, model, split, 2, whole
  )


def test_logits_are_in_order_and_do_not_depend_on_the_rows_beside():
  model = make_model(3)
  split, found = predict_rows(model)
  assert found['logits'].shape == (5, 3)
  assert found['logits'].dtype == np.float32
  module = classifier.Classifier(made.BERT, 3, 0.0)
  params = model.head.add_to(model.params)
  apply = jax.jit(module.apply)
  for i in range(5):
    row = split.encoded.make_batch(np.array([i]), 16, 0)
    alone = apply({'params': params}, row)
    np.testing.assert_allclose(found['logits'][i], alone[0], atol=2e-6)
  assert len(np.unique(found['logits'].round(4), axis=0)) == 5


def predict_file(tmp_path, content, name='out.csv', **fields):
  """Returns the path of the predictions for a table."""
  given, output = tmp_path / 'in.csv', str(tmp_path / name)
  given.write_text(content)
  job = predictions.Job('', make_model(), str(given), output, **fields)
  predictions.predict(job, tasks.SUPERVISED)
  return output


def read_csv(path) -> list[dict]:
  return list(csv.DictReader(made.read_lines(path)))


def read_jsonl(path) -> list[dict]:
  return [json.loads(line) for line in made.read_lines(path)]


ROWS = 'id,text,label\n7,the cat,class 0\n8,dog,class 149\n,cats,class 0\n'
LABELS = ['class 0', 'class 149', 'class 0']


def test_tables_have_the_likeliest_of_what_jsonl_has(tmp_path):
  expected = read_jsonl(predict_file(tmp_path, ROWS, 'out.jsonl'))
  assert all(len(row.pop('probabilities')) == CLASSES for row in expected)
  assert read_csv(predict_file(tmp_path, ROWS)) == [
    {name: str(value) for name, value in row.items()} for row in expected
  ]


def test_columns_of_the_input_are_kept(tmp_path):
  rows = read_csv(predict_file(tmp_path, ROWS, keep=['text', 'id']))
  assert list(rows[0]) == ['text', 'id', 'prediction', 'probability']
  assert [x['id'] + x['text'] for x in rows] == ['7the cat', '8dog', 'cats']
  rows = read_jsonl(predict_file(tmp_path, ROWS, 'out.jsonl', keep=['all']))
  assert list(rows[0])[:4] == ['id', 'text', 'label', 'prediction']


def test_a_labelled_file_is_scored(tmp_path, capsys):
  rows = read_csv(predict_file(tmp_path, ROWS, label='label'))
  right = [x['prediction'] == y for x, y in zip(rows, LABELS, strict=True)]
  found = made.read_json(tmp_path / 'out.scores.json')
  assert found['metrics']['accuracy'] == sum(right) / 3
  assert found['baseline']['accuracy'] == 2 / 3  # class 0 is commonest
  assert found['classes']['class 0']['rows'] == 2
  assert sum(sum(x.values()) for x in found['confusion'].values()) == 3
  said = capsys.readouterr().out
  assert 'in.csv accuracy ' in said
  # The weights are random.
  assert found['problem'] and f'WARNING: {found["problem"]}.' in said


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'label': 'stars'}, "no column 'stars'; .* by --label="),
    ({'label': 'id'}, 'without a label, the first in line 4'),
    ({'label': 'text'}, "has the label 'the cat', which is not learnt"),
    ({'keep': ['name']}, "'name' is not a column .* has id, text, label"),
    ({'keep': ['prediction']}, "'prediction' is written"),
    ({'content': 'w\na\n'}, "no column 'text'; it has w; .* by --text="),
    ({'name': 'out.txt'}, 'out.txt does not end in .tsv, .csv, .jsonl; give'),
    (
      {'content': 'text\n"b\nc"\n', 'name': 'out.tsv', 'keep': ['all']},
      'line 2 has a tab .* .csv or',
    ),
  ],
)
def test_what_cannot_be_predicted_is_refused_before_that(
  tmp_path, monkeypatch, fields, message
):
  monkeypatch.delattr(predictions, 'predict_rows')
  with pytest.raises(errors.UserError, match=message):
    predict_file(tmp_path, **{'content': ROWS, **fields})
  assert not (tmp_path / 'out.csv').exists()


@pytest.mark.parametrize(
  'task, fields, message',
  [
    ('tagging', {}, 'out.csv does not end in .conll, .txt; give'),
    ('tagging', {'keep': ['id']}, '--keep is for tables'),
    *(
      (
        'tagging',
        {'columns': (x,)},
        f"--text='{x}' is not the number of a col",
      )
      for x in ('words', '1.0', '²')
    ),
    ('spans', {'label': 'x'}, '--label means nothing here, since answers'),
  ],
)
def test_flags_without_a_meaning_are_refused(task, fields, message):
  output = 'out.conll' if 'columns' in fields else 'out.csv'
  job = predictions.Job('', make_model(task=task), 'in.txt', output, **fields)
  with pytest.raises(errors.UserError, match=message):
    predictions.predict(job, tasks.SUPERVISED)


@pytest.mark.parametrize(
  'task, flags',
  [('classification', '--text=COLUMN'), ('choice', '--choices=COLUMN')],
)
def test_a_model_of_transformers_own_has_to_be_told_the_columns(task, flags):
  model = make_model(task=task)
  model = model._replace(head=model.head._replace(columns=()))
  job = predictions.Job('', model, 'in.csv', 'out.csv')
  with pytest.raises(errors.UserError, match=f'give .*{flags} and, if need'):
    predictions.predict(job, tasks.SUPERVISED)


def test_python_gives_lists_and_gets_lists(tmp_path):
  texts, model = ['the cat', 'dog', '', 'cats'], make_model()
  found = Model(model).predict(texts)
  content = 'text\n' + '\n'.join(texts)
  rows = read_jsonl(predict_file(tmp_path, content, 'x.jsonl'))
  assert found == rows[:4] and Model(model).predict([]) == []
  pairs = Model(model).predict(np.array(texts), np.array(['dog'] * 4))
  assert len(pairs) == 4 and pairs != found
  with pytest.raises(ValueError, match='argument 2 is shorter'):
    Model(model).predict(texts, ['dog'])
  with pytest.raises(errors.UserError, match='is a model for tagging, not for'):
    Model(make_model(task='tagging')).predict(texts)
