"""Tests that a task needs one class and one row in a table, by adding one."""

import csv

import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.finetuning import encode, supervised, tables
from tests.finetuning import made

LABELS = 'even', 'odd'


class Parity(supervised.Supervised):
  """Tells texts of an even from texts of an odd number of words."""

  name = 'parity'
  pipeline = 'text-classification'

  def list_labels(self, source, contents):
    return LABELS

  def encode(self, how, content, labels, split=''):
    tokenized = encode.tokenize(how.tokenizer, content.texts)
    encoded = encode.join(how.tokenizer, tokenized, None, how.length)
    words = [len(x.split()) for x in content.texts]
    rows = encode.Rows(encoded, np.array(words, np.int32) % 2)
    return rows, tables.list_facts(content)

  def list_metrics(self, labels, f=None):
    return ('accuracy',)


@pytest.mark.slow
def test_a_task_is_a_class_and_a_row_in_a_table(tmp_path, monkeypatch, capsys):
  this = Parity()
  monkeypatch.setitem(tasks.SUPERVISED, this.name, this)
  monkeypatch.setitem(tasks.TASKS, this.name, tasks.define(this))
  c = made.configure(tmp_path, task='parity')
  run, texts = made.train(c, tmp_path), c.data.input
  out = capsys.readouterr().out
  assert 'no export: transformers has no class for parity' in out
  found = made.read_json(run, 'results.json')
  assert found['metrics'].keys() == {'accuracy'} == found['intervals'].keys()
  assert found['counts'] == {'train': 48, 'dev': 10, 'test': 2}
  output = str(tmp_path / 'out.csv')
  made.predict(run, f'{texts}/test.csv', output, '--keep=text')
  rows = list(csv.DictReader(made.read_lines(output)))
  assert [x['text'] for x in rows] == ['the dog', 'cats']
  assert {x['prediction'] for x in rows} <= set(LABELS)
  assert 'test.csv accuracy ' in capsys.readouterr().out  # labels are known
