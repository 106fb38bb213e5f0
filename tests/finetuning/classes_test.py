"""Tests of classifying and rating texts, in whole runs of a tiny model."""

import dataclasses
import functools
import json
import os
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors, main
from bert_jax.finetuning import (
  batches,
  classes,
  encode,
  outcome,
  supervised,
  training,
)
from bert_jax.finetuning.readers.glue import TASKS
from bert_jax.inference import source
from bert_jax.model import classifier, parameters
from bert_jax.ops import tied_decoder
from bert_jax.workdir import fingerprint
from tests import models
from tests.finetuning import made


def make(tmp_path, rows, dev='a', **changes):
  """Returns the data of rows of training texts."""
  texts = made.write_csv(tmp_path / 'texts', train=rows, dev=[f'cat,{dev}'])
  c = made.configure(tmp_path, texts, **changes)
  return made.prepare(c, str(tmp_path / 'run'))[1]


def test_what_is_written_is_read(tmp_path):
  rows = ['the cat,a', 'dogs,b', 'cat,a', 'cat ' * 20 + ',a']
  found = make(tmp_path, rows)
  train = found.splits['train']
  # [PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s
  rows = np.split(train.encoded.ids, train.encoded.ends[:-1])
  assert [x.tolist() for x in rows] == [
    [2, 5, 6, 3], [2, 7, 8, 3], [2, 6, 3], [2, *([6] * 14), 3]
  ]  # fmt: skip
  assert (
    train.labels.tolist() == [0, 1, 0, 0] and train.labels.dtype == np.int32
  )
  assert found.labels == ('a', 'b') and found.tokenizer == models.TOKENIZER
  line = found.manifest['read'][0]
  assert '4 rows, labels a (3), b (1), longest 16 tokens, 1 truncated (' in line


def test_numbers_are_kept_as_numbers(tmp_path):
  regression = {'finetuning.regression': True}
  data = make(tmp_path, ['cat,1.5', 'dog,-2'], '0.5', **regression)
  train = data.splits['train']
  assert train.labels.tolist() == [1.5, -2] and data.labels == ()
  unknown = dataclasses.replace(train, labels=None)
  for rows in (train, unknown):
    assert rows.make_batch(np.arange(2), 8, 0)['labels'].dtype == np.float32
  assert classes.CLASSES.list_metrics(data.labels)[2:] == (
    'mean_squared_error',
  )
  assert 'from -2.0 to 1.5' in data.manifest['read'][0]


def test_a_head_starts_at_the_frequency_of_classes_or_the_mean_of_numbers():
  this = classes.Classes()
  rows = encode.Rows(None, np.array([0, 1, 1, 1, 1, 1], np.int32))
  # A row of each class, and of one that is not there, is added.
  shares = np.exp(this.find_bias(rows, 3))
  np.testing.assert_allclose(shares, [2 / 9, 6 / 9, 1 / 9], 1e-6)
  rows = dataclasses.replace(rows, labels=np.array([1.5, 4], np.float32))
  np.testing.assert_array_equal(this.find_bias(rows, 0), [2.75])


def test_what_is_not_used_is_said(tmp_path):
  made.write_csv(tmp_path / 'texts', test=['cat,a', 'dogs,'])
  (tmp_path / 'texts' / 'test_old.csv').write_text('')
  found = make(tmp_path, ['cat,a', 'dogs,b', 'dog,-', 'cats,-'])
  lines = found.manifest['read']
  assert lines[1].startswith(
    'WARNING: train: 2 rows labelled - or -1, which is none, left out; '
    'the first is line 4'
  )
  assert 'dev: 1 row with the text of a training row; the' in '\n'.join(lines)
  assert found.splits['train'].size == 2 and found.labels == ('a', 'b')
  assert 'test: 1 row without a label, not scored' in '\n'.join(lines)
  assert lines[-1] == 'not read: test_old.csv'


@pytest.mark.slow
def test_a_run_that_is_interrupted_ends_with_the_same_parameters(
  finetuned, tmp_path, monkeypatch
):
  done = made.list_logged(finetuned, 'checkpoint')[-1]['fingerprint']
  c = made.configure(tmp_path, **{'checkpoint.every': 5})
  workdir = str(tmp_path / 'run')
  batch = batches.Batches.train_batch

  def fail(self, phase, step, rows=None):
    if step == 12:
      raise InterruptedError
    return batch(self, phase, step, rows)

  with monkeypatch.context() as patched:
    patched.setattr(batches.Batches, 'train_batch', fail)
    with pytest.raises(InterruptedError):
      main.run(c, workdir)
  shutil.rmtree(c.init_from)  # is not needed any more
  main.run(c, workdir)
  assert made.list_logged(workdir, 'checkpoint')[-1]['fingerprint'] == done


@pytest.mark.parametrize('outputs', [1, 3])
def test_rows_of_weight_0_change_nothing(outputs, monkeypatch):
  logits = np.arange(2 * outputs, dtype=np.float32).reshape(2, outputs)
  monkeypatch.setattr(supervised, 'apply', lambda *_: jnp.array(logits))
  module, found = types.SimpleNamespace(outputs=outputs), []
  compute = functools.partial(classes.CLASSES.compute_sums, module, None)
  compute = jax.jit(functools.partial(compute, key=None))
  for other in (0, 2):
    labels = np.array([1, other]) * (1.0 if outputs == 1 else 1)
    weights = np.array([1.0, 0.0], np.float32)
    batch = {'labels': labels, 'label_weights': weights}
    found.append(compute(batch)[0])
  loss, *_ = names = classes.CLASSES.list_sums(None, module)[0]
  assert found[0] == found[1] and found[0][loss] > 0
  assert found[0].keys() == set(names)


def test_the_results_say_what_was_learnt(finetuned):
  [facts] = made.list_logged(finetuned, 'run')
  assert facts['init_from']['changes'] == [
    'mlm: left out',
    'nsp: left out',
    'classifier: new, the source has none',
  ]
  assert made.list_logged(finetuned, 'eval')[-1]['cross_entropy'] < 0.3
  found = made.read_json(finetuned, 'results.json')
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


def test_the_export_is_the_run_and_its_card_has_the_scores(finetuned):
  _, export = made.read_with_export(finetuned)
  assert export.head.labels == ('cat', 'dog')
  assert export.head.columns == ('text',)
  assert export.report.left_over == [] and 'pooler' in export.params
  found = made.read_json(finetuned, 'export', 'config.json')
  assert found['architectures'] == ['BertForSequenceClassification']
  assert found['id2label'] == {'0': 'cat', '1': 'dog'}
  assert found['label2id'] == {'cat': 0, 'dog': 1}
  assert found['problem_type'] == 'single_label_classification'
  card = '\n'.join(made.read_lines(finetuned, 'export', 'README.md'))
  assert '* dev accuracy 1.0000 [0.7225, 1.0000], a constant gets 0.5' in card
  assert '| finetuning.epochs | `8.0` |' in card
  # The animal is a word.
  assert '* counting words gets on dev accuracy 1.0000 [0.7225, 1.' in card
  assert '* WARNING: no better than counting words: acc' in card


@pytest.mark.slow
def test_the_best_epoch_is_what_is_scored_exported_and_read(tmp_path, capsys):
  # Right from the first epoch on, so none is better.
  run = made.run(tmp_path, **{'finetuning.select': 'best'})
  out, found = capsys.readouterr().out, made.read_json(run, 'results.json')
  rows = made.list_logged(run, 'eval')
  curve = {x['step']: x['accuracy'] for x in rows}
  assert list(curve) == [6, 12, 18, 24, 30, 36, 42, 48]
  first = next(step for step, x in curve.items() if x == max(curve.values()))
  assert first < 48 and (found['select'], found['step']) == ('best', first)
  assert f'of step {first} of 48, the best on dev, so dev is' in out
  model, export = source.read(run), source.read(os.path.join(run, 'export'))
  assert model.step == first
  np.testing.assert_array_equal(model.head.kernel, export.head.kernel)
  last = source.read(f'{run}@48').head.kernel
  assert np.abs(last - export.head.kernel).max() > 1e-4


@pytest.mark.parametrize(
  'name, chosen, submitted',
  [
    # Between 0 and 5.
    ('stsb', [-0.25, 5.5, 2.34567], ['0.000', '5.000', '2.346']),
    ('rte', [1, 0, 1], ['not_entailment', 'entailment', 'not_entailment']),
  ],
)
def test_a_submission_has_ids_and_what_is_predicted(
  tmp_path, name, chosen, submitted
):
  known = TASKS[name]
  c = made.make_config('', '', **{'finetuning.glue': name})
  columns = training.list_columns(classes.CLASSES, c)
  assert columns == ('sentence1', 'sentence2')
  split = encode.Rows(None, None, ids=['7', '3', '4'])
  data = training.Data({'test': split}, known.labels, models.TOKENIZER, {})
  found = {'test': {'chosen': np.array(chosen)}}
  assert outcome.write_submission(name, str(tmp_path), data, found)
  lines = made.read_lines(tmp_path, 'submission', f'{known.folder}.tsv')
  expected = zip(split.ids, submitted, strict=True)
  assert lines == ['index\tprediction', *map('\t'.join, expected)]


def join_gpt():
  how = encode.How(encode.extend(models.TOKENIZER), 8, 'gpt')
  rows = encode.encode_texts(how, ['the cats', 'dog'], None)
  return rows.make_batch(np.arange(2), 5, 0)


def configure_gpt(root):
  texts = made.write_texts(root / 'texts')
  source, *_ = made.write_model(root / 'ltr', causal=True)
  form = {'finetuning.form': 'gpt', 'finetuning.epochs': 30.0}
  return made.make_config(source, texts, **form)


@pytest.mark.slow
def test_half_the_mean_loss_of_the_tokens_is_added():
  bert = dataclasses.replace(made.BERT, causal=True, vocab_size=14)
  module = classifier.GptClassifier(bert, 2, 0.0)
  params = parameters.init(module, jax.random.key(0))
  batch = join_gpt()
  batch |= {'labels': np.array([0, 1]), 'label_weights': np.array([1.0, 0.0])}
  batch = jax.tree.map(jnp.asarray, batch)
  found, _ = classes.CLASSES.compute_sums(module, params, batch, None)
  _, inputs = module.apply({'params': params}, batch, method='with_tokens')
  x, table, bias, _ = inputs
  logits = x[:1] @ table.T + bias[None, None]
  loss, _ = tied_decoder.sum_tokens(
    logits, batch['input_ids'][:1, 1:], jnp.ones((1, 4))
  )
  # The row of weight 0 does not count.
  np.testing.assert_allclose(found['half_lm_loss'], loss / 2, rtol=1e-5)
  _, counts, _ = classes.CLASSES.list_sums(None, module)
  assert counts['half_lm_loss'](batch) == 4  # the cat ##s [EXTRACT]


ROWS = [
  ('cat', ['pet', 'cat']),
  ('dog', ['pet']),
  ('the the', []),
] * 16


def write_sets(folder, rows=ROWS, dev=ROWS[:6]):
  folder.mkdir()
  for name, found in (('train', rows), ('dev', dev)):
    lines = (json.dumps({'text': x, 'label': y}) + '\n' for x, y in found)
    (folder / f'{name}.jsonl').write_text(''.join(lines))
  return str(folder)


def configure_sets(tmp_path, *rows, **changes):
  texts = write_sets(tmp_path / 'texts', *rows)
  fields = {'finetuning.multi_label': True, **changes}
  return made.configure(tmp_path, texts, **fields)


def test_sets_are_read(tmp_path):
  rows = [('cat', ['b', 'a']), ('dog', []), ('cat dog', ['b'])]
  c = configure_sets(tmp_path, rows, [('the dog', ['a'])])
  data = made.prepare(c, str(tmp_path / 'run'))[1]
  train = data.splits['train']
  assert data.labels == ('a', 'b')
  assert train.labels.tolist() == [[1, 1], [0, 0], [0, 1]]
  batch = train.make_batch(np.array([0, 2]), 8, 0)
  assert batch['labels'].tolist() == [[1, 1], [0, 1]]
  line = data.manifest['read'][0]
  assert 'train: 3 rows, 1.00 labels per row, labels a (1), b (2), lo' in line


@pytest.mark.parametrize(
  'train, dev, message',
  [
    ([('cat', [])], [('cat', [])], 'no training row with a label; is it in data'),
    ([('cat', ['a'])], [('cat', ['b'])], "label 'b', which is not learnt"),
    ([('cat', ['a']), ('a', None)], [('cat', [])], 'train.jsonl: 1 row without a l'),
  ],
)  # fmt: skip
def test_labels_are_known_and_there_are_some(tmp_path, train, dev, message):
  with pytest.raises(errors.UserError, match=message):
    made.prepare(configure_sets(tmp_path, train, dev), str(tmp_path / 'run'))


def test_the_loss_is_the_mean_over_labels_of_their_cross_entropy(monkeypatch):
  # Probabilities of 1/2 and 3/4, of which the first is true.
  logits = jnp.array([[0, np.log(3)], [5, 5]], jnp.float32)
  monkeypatch.setattr(supervised, 'apply', lambda *_: logits)
  batch = {
    'labels': jnp.array([[1, 0], [0, 1]]),
    'label_weights': jnp.array([1.0, 0.0]),
  }
  sums, found = classes.SETS.compute_sums(None, None, batch, None)
  expected = (np.log(2) + np.log(4)) / 2
  np.testing.assert_allclose(sums['cross_entropy'], expected, 1e-6)
  np.testing.assert_allclose(found['probabilities'][0], [0.5, 0.75], 1e-6)


def test_a_head_starts_at_the_log_odds_of_labels():
  labels = np.array([[1, 0, 1], [1, 0, 0]], np.int32)
  rows = encode.Rows(made.encode_rows(['cat', 'dog'], None, 8), labels)
  # One row with and one without each label are added.
  bias = classes.SETS.find_bias(rows, 3)
  np.testing.assert_allclose(np.exp(bias), [3, 1 / 3, 1], 1e-6)


def test_predictions_that_are_all_the_same_are_a_problem():
  scored = {'doubt': 0, 'metrics': {'micro_f1': 1}, 'baseline': {'micro_f1': 0}}
  found = {'chosen': np.eye(2, dtype=bool), 'probabilities': np.eye(2)}
  find = classes.SETS.find_problem
  assert find(scored, found) is None
  assert 'all 2' in find(scored, found | {'chosen': np.ones((2, 3), bool)})
  wrong = found | {'probabilities': np.array([[0, np.nan], [1, 0]])}
  assert find(scored, wrong) == 'some predictions are not finite'


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'finetuning.metrics': 'pearson'}, 'must be some of accuracy, f1'),
    ({'data.max_documents': 1}, 'only the label .*; there is nothing'),
  ],
)
def test_what_cannot_be_learnt_is_refused_before_training(
  tmp_path, changes, message
):
  with pytest.raises(errors.UserError, match=message):
    make(tmp_path, ['the cat,a', 'dogs,b'], **changes)


def test_rows_without_text_are_kept_and_said(tmp_path):
  found = make(tmp_path, ['the cat,a', ',b', '  ,b'])
  train = found.splits['train']
  assert np.diff(train.encoded.ends).tolist() == [2, 2]  # [CLS] [SEP]
  lines = found.manifest['read']
  assert lines[0].startswith(
    'train: 3 rows, labels a (1), b (2), longest 4 tokens ('
  )
  assert lines[1].startswith('WARNING: train: 2 rows without text, but kept;')
