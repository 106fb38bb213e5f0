"""Tests of what a fine-tuning run leaves behind."""

import json
import os

import numpy as np
import pytest

from bert_jax import main, predict
from bert_jax.inference import source
from bert_jax.workdir import fingerprint, log
from tests.finetuning import made


def read_lines(*path):
  with open(os.path.join(*path), encoding='utf-8') as file:
    return file.read().splitlines()


def read_results(workdir):
  with open(os.path.join(workdir, 'results.json'), encoding='utf-8') as file:
    return json.load(file)


def test_the_results_say_what_was_learnt(finetuned):
  found = read_results(finetuned)
  assert found['metrics'] == {'accuracy': 1, 'macro_f1': 1, 'matthews': 1}
  assert found['intervals']['accuracy'] == pytest.approx([0.7225, 1], abs=1e-4)
  assert found['baseline']['accuracy'] == 0.5
  assert found['counts'] == {'train': 48, 'dev': 10, 'test': 2}
  assert found['problem'] is None and found['steps'] == 48
  assert found['confusion'] == {'cat': {'cat': 5}, 'dog': {'dog': 5}}
  assert found['classes']['cat'] == {
    'precision': 1, 'recall': 1, 'f1': 1, 'rows': 5
  }  # fmt: skip
  model = source.read(finetuned)
  params = model.head.add_to(model.params)
  mark = fingerprint.combine(fingerprint.of_arrays(params))
  assert found['fingerprint'] == mark


def test_a_model_is_scored_later_as_at_the_end_of_its_run(finetuned, tmp_path):
  dev = os.path.join(os.path.dirname(finetuned), 'texts', 'dev.csv')
  model, output = os.path.join(finetuned, 'export'), str(tmp_path / 'x.csv')
  predict.predict(model, dev, output, label='label')
  with open(tmp_path / 'x.scores.json', encoding='utf-8') as file:
    found = json.load(file)
  assert found == {name: read_results(finetuned)[name] for name in found}
  assert found['metrics'] and found['intervals'] and found['confusion']


def test_predictions_are_in_the_order_of_the_rows(finetuned):
  dev = read_lines(finetuned, 'predictions', 'dev.tsv')
  assert dev[0] == 'id\tlabel\tprediction\tprobability'
  assert [line.split('\t')[:3] for line in dev[1:4]] == [
    ['0', 'cat', 'cat'],
    ['1', 'dog', 'dog'],
    ['2', 'cat', 'cat'],
  ]
  test = read_lines(finetuned, 'predictions', 'test.tsv')
  assert test[0] == 'id\tprediction\tprobability'
  assert [line.split('\t')[1] for line in test[1:]] == ['dog', 'cat']


def test_the_export_is_the_run(finetuned):
  run, export = (
    source.read(path) for path in (finetuned, os.path.join(finetuned, 'export'))
  )
  for name in ('kernel', 'bias'):
    np.testing.assert_array_equal(
      getattr(run.head, name), getattr(export.head, name)
    )
  for field in ('labels', 'max_length', 'columns'):
    assert getattr(run.head, field) == getattr(export.head, field)
  assert run.head.labels == ('cat', 'dog') and run.head.columns == ('text',)
  assert export.report.left_over == [] and 'pooler' in export.params
  assert run.tokenizer == export.tokenizer


def test_the_export_names_its_classes_for_transformers(finetuned):
  path = os.path.join(finetuned, 'export', 'config.json')
  with open(path, encoding='utf-8') as file:
    found = json.load(file)
  assert found['architectures'] == ['BertForSequenceClassification']
  assert found['id2label'] == {'0': 'cat', '1': 'dog'}
  assert found['label2id'] == {'cat': 0, 'dog': 1}
  assert found['problem_type'] == 'single_label_classification'


def test_the_card_has_the_scores_and_the_recipe(finetuned):
  card = '\n'.join(read_lines(finetuned, 'export', 'README.md'))
  assert '| dev | 10 | accuracy | 1.0000 | 0.7225 to 1.0000 | 0.5000 |' in card
  assert '| finetuning.epochs | `8.0` |' in card


@pytest.mark.slow
def test_the_best_epoch_is_what_is_scored_exported_and_read(tmp_path, capsys):
  # Right from the first epoch on, so none is better.
  run = made.run(tmp_path, **{'finetuning.select': 'best'})
  out, found = capsys.readouterr().out, read_results(run)
  rows = log.read(os.path.join(run, 'metrics.jsonl'))
  curve = {x['step']: x['accuracy'] for x in rows if x['kind'] == 'eval'}
  assert list(curve) == [6, 12, 18, 24, 30, 36, 42, 48]
  first = next(step for step, x in curve.items() if x == max(curve.values()))
  assert first < 48 and (found['select'], found['step']) == ('best', first)
  assert f'of step {first} of 48, the best on dev, so dev is' in out
  model, export = source.read(run), source.read(os.path.join(run, 'export'))
  assert model.step == first
  np.testing.assert_array_equal(model.head.kernel, export.head.kernel)
  last = source.read(f'{run}@48').head.kernel
  assert np.abs(last - export.head.kernel).max() > 1e-4


@pytest.mark.slow
def test_a_run_may_start_from_a_fine_tuned_model_with_its_head(
  finetuned, tmp_path
):
  c = made.make_config(
    os.path.join(finetuned, 'export'),
    made.write_texts(tmp_path / 'texts'),
    **{'finetuning.epochs': 0.2, 'optimizer.learning_rate': 1e-9},
  )
  main.run(c, str(tmp_path / 'run'))
  assert read_results(tmp_path / 'run')['metrics']['accuracy'] == 1
  rows = log.read(str(tmp_path / 'run' / 'metrics.jsonl'))
  [facts] = [row['init_from'] for row in rows if row['kind'] == 'run']
  assert facts['changes'] == []


HEADER = 'index\tsentence1\tsentence2'


def write_rte(folder):
  folder.mkdir()
  rows = [
    (i, 'the cat', word, label)
    for i, (word, label) in enumerate(
      [('cats', 'entailment'), ('dog', 'not_entailment')] * 8
    )
  ]
  lines = ['\t'.join(map(str, row)) for row in rows]
  for name in ('train', 'dev'):
    text = '\n'.join([f'{HEADER}\tlabel', *lines]) + '\n'
    (folder / f'{name}.tsv').write_text(text)
  (folder / 'test.tsv').write_text(f'{HEADER}\n7\tthe cat\tdog\n3\tdog\tdog\n')
  return str(folder)


@pytest.mark.slow
def test_a_glue_task_writes_the_file_of_a_submission(tmp_path, capsys):
  c = made.make_config(
    made.write_source(tmp_path / 'source', pooler=None, nsp=None),
    write_rte(tmp_path / 'RTE'),
    **{'finetuning.glue': 'rte', 'finetuning.epochs': 1.0},
  )
  main.run(c, str(tmp_path / 'run'))
  lines = read_lines(tmp_path / 'run', 'submission', 'RTE.tsv')
  assert lines[0] == 'index\tprediction'
  assert [line.split('\t')[0] for line in lines[1:]] == ['7', '3']
  labels = {line.split('\t')[1] for line in lines[1:]}
  assert labels <= {'entailment', 'not_entailment'}
  assert os.listdir(tmp_path / 'run' / 'submission') == ['RTE.tsv']
  # The source has no pooler, which is said.
  assert 'pooler: new, the source has none' in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_is_no_better_than_a_constant_says_so(tmp_path, capsys):
  texts = tmp_path / 'texts'
  texts.mkdir()
  rows = 'text,label\n' + 'cat,a\ncat,b\ncat,a\ncat,a\n' * 4
  (texts / 'train.csv').write_text(rows)
  (texts / 'dev.csv').write_text(rows)
  c = made.make_config(made.write_source(tmp_path / 'source'), str(texts))
  c.optimizer.learning_rate, c.finetuning.epochs = 1e-9, 1.0
  main.run(c, str(tmp_path / 'run'))
  problem = 'all 16 predictions are the same'
  assert read_results(tmp_path / 'run')['problem'] == problem
  advice = 'after 2 updates at 1e-09, try finetuning.epochs='
  assert f'WARNING: {problem}; {advice}' in capsys.readouterr().out
