"""Tests of telling which of several labels a text has."""

import csv
import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import label_sets, supervised, training
from tests.finetuning import made

ROWS = [
  ('cat', ['pet', 'cat']),
  ('dog', ['pet']),
  ('the the', []),
] * 16


def write(folder, rows=ROWS, dev=ROWS[:6]):
  folder.mkdir()
  for name, found in (('train', rows), ('dev', dev)):
    lines = (json.dumps({'text': x, 'label': y}) + '\n' for x, y in found)
    (folder / f'{name}.jsonl').write_text(''.join(lines))
  return str(folder)


def configure(tmp_path, *rows, **changes):
  texts = write(tmp_path / 'texts', *rows)
  fields = {'finetuning.multi_label': True, **changes}
  return made.configure(tmp_path, texts, **fields)


def test_what_is_written_is_read(tmp_path):
  rows = [('cat', ['b', 'a']), ('dog', []), ('cat dog', ['b'])]
  c = configure(tmp_path, rows, [('the dog', ['a'])])
  data = made.prepare(c, str(tmp_path / 'run'))[1]
  train = data.splits['train']
  assert data.labels == ('a', 'b')
  assert train.labels.tolist() == [[1, 1], [0, 0], [0, 1]]
  batch = train.make_batch(np.array([0, 2]), 8, 0)
  assert batch['labels'].tolist() == [[1, 1], [0, 1]]
  line = training.describe(label_sets.TASK, data.manifest)[0]
  assert 'train: 3 rows, 1.00 labels per row, labels a (1), b (2), lo' in line


@pytest.mark.parametrize(
  'train, dev, message',
  [
    ([('cat', [])], [('cat', [])], 'no training row with a label; is it in data'),
    ([('cat', ['a'])], [('cat', ['b'])], "label 'b', which is not learnt"),
    ([('cat', ['a']), ('a', None)], [('cat', [])], '1 row of train without a l'),
  ],
)  # fmt: skip
def test_labels_are_known_and_there_are_some(tmp_path, train, dev, message):
  with pytest.raises(errors.UserError, match=message):
    made.prepare(configure(tmp_path, train, dev), str(tmp_path / 'run'))


def test_the_loss_is_the_mean_over_labels_of_their_cross_entropy(monkeypatch):
  # Probabilities of 1/2 and 3/4, of which the first is true.
  logits = jnp.array([[0, np.log(3)], [5, 5]], jnp.float32)
  monkeypatch.setattr(supervised, 'apply', lambda *_: logits)
  batch = {
    'labels': jnp.array([[1, 0], [0, 1]]),
    'label_weights': jnp.array([1.0, 0.0]),
  }
  sums, found = label_sets.TASK.compute_sums(None, None, batch, None)
  expected = (np.log(2) + np.log(4)) / 2
  np.testing.assert_allclose(sums['cross_entropy'], expected, 1e-6)
  np.testing.assert_allclose(found['probabilities'][0], [0.5, 0.75], 1e-6)


def test_a_head_starts_at_the_log_odds_of_labels():
  labels = np.array([[1, 0, 1], [1, 0, 0]], np.int32)
  rows = label_sets.LabelRows(made.encode_rows(['cat', 'dog'], None, 8), labels)
  # One row with and one without each label are added.
  bias = label_sets.TASK.find_bias(rows, 3)
  np.testing.assert_allclose(np.exp(bias), [3, 1 / 3, 1], 1e-6)


def test_predictions_that_are_all_the_same_are_a_problem():
  scored = {'doubt': 0, 'metrics': {'micro_f1': 1}, 'baseline': {'micro_f1': 0}}
  found = {'chosen': np.eye(2, dtype=bool), 'probabilities': np.eye(2)}
  find = label_sets.TASK.find_problem
  assert find(scored, found) is None
  assert 'all 2' in find(scored, found | {'chosen': np.ones((2, 3), bool)})
  wrong = found | {'probabilities': np.array([[0, np.nan], [1, 0]])}
  assert find(scored, wrong) == 'some predictions are not finite'


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  root = tmp_path_factory.mktemp('sets')
  return made.train(configure(root), root)


@pytest.mark.slow
def test_a_run_learns_sets_and_its_export_is_the_same_model(run):
  found = made.read_json(run, 'results.json')
  assert found['task'] == 'multi_label' and found['problem'] is None
  assert found['metrics'] == dict.fromkeys(found['metrics'], 1)
  assert list(found['metrics']) == ['micro_f1', 'macro_f1', 'subset_accuracy']
  # One label for all six rows, of which four have it; they have six labels.
  assert found['baseline']['micro_f1'] == pytest.approx(2 * 4 / 12)
  assert found['classes']['pet']['rows'] == 4
  ours, _ = made.read_with_export(run)
  assert ours.head.task == 'multi_label' and ours.head.labels == ('cat', 'pet')
  assert ours.head.settings.threshold == found['threshold'] != 0.5
  described = made.read_json(run, 'export', 'config.json')
  assert described['problem_type'] == 'multi_label_classification'
  assert described['architectures'] == ['BertForSequenceClassification']
  more = described['task_specific_params']['bert_jax']
  assert more['threshold'] == found['threshold']
  card = '\n'.join(made.read_lines(run, 'export', 'README.md'))
  assert "`threshold` of `model.config.task_specific_params['b" in card
  tsv = made.read_lines(run, 'predictions', 'dev.tsv')
  columns = 'id\tlabel\tprediction\tprobability_cat\tprobability_pet'
  assert tsv[0] == columns
  assert [x.split('\t')[:3] for x in tsv[1:4]] == [
    ['0', '["cat", "pet"]', '["cat", "pet"]'],
    ['1', '["pet"]', '["pet"]'],
    ['2', '[]', '[]'],
  ]


@pytest.mark.slow
def test_predictions_for_a_file_are_scored_as_at_the_end_of_a_run(
  run, tmp_path
):
  dev = os.path.join(os.path.dirname(run), 'texts', 'dev.jsonl')
  output, export = str(tmp_path / 'x.csv'), os.path.join(run, 'export')
  made.predict(export, dev, output, '--label=label', '--keep=text')
  found = made.read_json(tmp_path / 'x.scores.json')
  assert found == {
    name: made.read_json(run, 'results.json')[name] for name in found
  }
  rows = list(csv.DictReader(made.read_lines(output)))
  assert [json.loads(x['prediction']) for x in rows[:3]] == [
    ['cat', 'pet'], ['pet'], []
  ]  # fmt: skip
  likely = [float(rows[1][f'probability_{x}']) for x in ('pet', 'cat')]
  assert likely[0] > likely[1]
  made.predict(run, dev, str(tmp_path / 'x.jsonl'))
  first = json.loads(made.read_lines(tmp_path, 'x.jsonl')[0])
  assert first['prediction'] == ['cat', 'pet']
  assert first['probabilities'].keys() == {'cat', 'pet'}
  # What is written is read, and its columns are not kept beside new ones.
  made.predict(run, output, str(tmp_path / 'y.csv'), '--label=prediction')
  with pytest.raises(errors.UserError, match="'probability_cat' is written"):
    made.predict(run, output, str(tmp_path / 'y.csv'), '--keep=probability_cat')
