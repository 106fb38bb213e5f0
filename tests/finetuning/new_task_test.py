"""Tests that a task needs one class and one row in a table, by adding one."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import main, predict, tasks
from bert_jax.finetuning import (
  classes,
  encode,
  row_task,
  supervised,
  task_data,
)
from bert_jax.finetuning.readers import data_files, examples
from bert_jax.inference import fine_tuned
from bert_jax.model import losses
from tests.finetuning import made

LABELS = 'even', 'odd'


class Parity(row_task.RowTask):
  """Tells texts of an even from texts of an odd number of words."""

  name = 'parity'
  card = supervised.Card('text-classification', '')

  def read(self, config, tokenizer):
    source, splits, facts = data_files.get_source(config), {}, {}
    for name, rows in examples.read_splits(source).items():
      splits[name] = self._encode(
        tokenizer, rows, max(config.phases.seq_length)
      )
      facts[name] = task_data.list_row_facts(rows, splits[name].encoded)
    return task_data.combine(splits, LABELS, tokenizer, facts)

  def _encode(self, tokenizer, rows, length):
    encoded = encode.join(
      tokenizer, encode.tokenize(tokenizer, rows.texts), None, length
    )
    labels = np.array([len(x.split()) % 2 for x in rows.texts], np.int32)
    return classes.TextRows(encoded, labels, np.arange(len(labels)))

  def pack(self, split):
    return encode.pack(split.encoded) | {'labels': split.labels}

  def unpack(self, arrays, facts):
    encoded = encode.unpack(arrays, facts['truncated'])
    labels = arrays['labels']
    return classes.TextRows(encoded, labels, np.arange(len(labels)))

  def describe_data(self, manifest):
    return [f'{len(manifest["splits"])} files']

  def list_columns(self, config):
    return (config.data.text,)

  def make_batch(self, data, split, rows, length):
    return encode.make_batch(split.encoded, rows, length, data.pad_id) | {
      'labels': split.labels[rows],
      'label_weights': np.ones(len(rows), np.float32),
    }

  def list_shapes(self, config, module, phase, rows):
    return fine_tuned.list_inputs(module, rows, phase.seq_length) | {
      'labels': jax.ShapeDtypeStruct((rows,), jnp.int32),
      'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
    }

  def compute_sums(self, module, params, batch, key):
    logits = supervised.apply(module, params, batch, key)
    loss, hits = losses.sum_tokens(
      logits, batch['labels'], batch['label_weights']
    )
    return {'cross_entropy': loss, 'accuracy': hits}, {'logits': logits}

  def describe_batch(self, batch):
    return [f'{len(batch["labels"])} texts']

  def list_metrics(self, labels, glue=''):
    return ('accuracy',)

  def read_given(self, job):
    table, kept = row_task.read_table(job)
    rows = examples.choose_columns(table, 'text', '', '', False)
    head = job.model.head
    split = self._encode(job.model.tokenizer, rows, head.max_length)
    return supervised.Given(split, kept)


@pytest.mark.slow
def test_a_task_is_a_class_and_a_row_in_a_table(tmp_path, monkeypatch, capsys):
  this = Parity()
  monkeypatch.setitem(tasks.SUPERVISED, this.name, this)
  monkeypatch.setitem(tasks.TASKS, this.name, tasks.define(this))
  source = made.write_source(tmp_path / 'source')
  texts = made.write_texts(tmp_path / 'texts')
  c = made.make_config(source, texts, task='parity')
  run = str(tmp_path / 'run')
  main.run(c, run)
  out = capsys.readouterr().out
  assert 'no export: transformers has no class for parity' in out
  found = made.read_json(run, 'results.json')
  assert found['metrics'].keys() == {'accuracy'} == found['intervals'].keys()
  assert found['counts'] == {'train': 48, 'dev': 10, 'test': 2}
  output = str(tmp_path / 'out.csv')
  assert predict.predict(run, f'{texts}/test.csv', output, keep=['text']) == 2
  with open(output, encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  assert [x['text'] for x in rows] == ['the dog', 'cats']
  assert {x['prediction'] for x in rows} <= set(LABELS)
  assert 'test.csv accuracy ' in capsys.readouterr().out  # labels are known
