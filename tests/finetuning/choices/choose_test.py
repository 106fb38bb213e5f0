"""Tests of choosing, in batches and in a whole run of a tiny model."""

import json
import os

import jax
import numpy as np
import pytest

from bert_jax import config as config_lib
from bert_jax import main, predict
from bert_jax.finetuning.choices import choose
from bert_jax.inference import source
from bert_jax.interop import hf_export
from bert_jax.model import classifier, parameters
from tests import models
from tests.finetuning import made
from tests.finetuning.choices import choice_data_test


def make_batch(tmp_path, length=12):
  """Returns a batch of 2 rows of 3 choices, and their data."""
  _, data = choice_data_test.make(tmp_path)
  split = data.splits['train']
  batch = choose.make_batch(data, split, np.array([1, 0]), length)
  return batch, split


def test_a_batch_has_all_choices_of_its_rows(tmp_path):
  batch, split = make_batch(tmp_path)
  assert batch['input_ids'].shape == (2, 3, 12)  # [B, N, S]
  assert batch['labels'].tolist() == [0, 2]
  first = split.encoded.ids[: split.encoded.ends[0]]  # choice 0 of row 0
  n = len(first)
  np.testing.assert_array_equal(batch['input_ids'][1, 0, :n], first)
  assert batch['input_mask'][1, 0].tolist() == [1] * n + [0] * (12 - n)
  # [CLS] the cat [SEP] e cat [SEP]
  assert batch['segment_ids'][1, 0, :8].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]


def make_model():
  module = classifier.Classifier(made.BERT, 1, 0.0)
  return module, parameters.init(module, jax.random.key(0))


@pytest.mark.slow
def test_the_logits_are_those_of_each_pair_alone(tmp_path):
  batch, _ = make_batch(tmp_path)
  module, params = make_model()
  sums, found = choose.compute_sums(module, params, batch, None)
  assert found['logits'].shape == (2, 3)
  for row in range(2):
    for i in range(3):
      pair = {name: batch[name][row, i][None] for name in choose._INPUTS}
      [[alone]] = module.apply({'params': params}, pair)
      np.testing.assert_allclose(found['logits'][row, i], alone, atol=1e-6)
  likely = jax.nn.log_softmax(found['logits'])
  expected = -(likely[0, 0] + likely[1, 2])
  np.testing.assert_allclose(sums['cross_entropy'], expected, rtol=1e-6)


def test_a_row_of_weight_0_counts_nothing(tmp_path):
  batch, _ = make_batch(tmp_path)
  batch['label_weights'][:] = 0
  module, params = make_model()
  sums, _ = choose.compute_sums(module, params, batch, None)
  assert sums['cross_entropy'] == sums['accuracy'] == 0


@pytest.mark.slow
def test_one_number_is_added_to_nothing_that_counts(tmp_path):
  """Softmax over the choices ignores the bias, so it is never learnt."""
  batch, _ = make_batch(tmp_path)
  module, params = make_model()

  def loss(params):
    return choose.compute_sums(module, params, batch, None)[0]['cross_entropy']

  grads = jax.grad(loss)(params)
  np.testing.assert_allclose(grads['classifier']['bias'], 0, atol=1e-7)
  assert np.abs(grads['classifier']['kernel']).max() > 1e-5


def write_rows(folder):
  """Writes rows in which the choice with a cat is right."""
  folder.mkdir()
  rows = []
  for i in range(48):
    choices = ['the dog', 'dogs e', 'the the']
    choices[i % 3] = ['cat', 'the cats', 'e cat'][i // 3 % 3]
    rows.append({'context': 'the ' * (i % 4), 'of': choices, 'label': i % 3})
  for name, part in (('train', rows), ('dev', rows[:10])):
    (folder / f'{name}.jsonl').write_text(
      '\n'.join(json.dumps(row) for row in part)
    )
  test = [{'context': '', 'of': ['dog', 'cat', 'e']}]
  (folder / 'test.jsonl').write_text(json.dumps(test[0]))
  return str(folder)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """Returns the working directory of a finished run."""
  root = tmp_path_factory.mktemp('choice')
  c = made.make_config(
    made.write_source(root / 'source'), write_rows(root / 'rows')
  )
  c.task, c.data.text, c.data.choices = 'choice', 'context', 'of'
  main.run(c, str(root / 'run'))
  return str(root / 'run')


@pytest.mark.slow
def test_a_run_learns_to_choose_and_says_how_well(run):
  with open(os.path.join(run, 'results.json'), encoding='utf-8') as file:
    found = json.load(file)
  assert found['metrics'] == {'accuracy': 1} and found['task'] == 'choice'
  assert found['baseline'] == {'accuracy': 0.4}  # 4 of 10 rows have label 0
  assert found['counts'] == {'train': 48, 'dev': 10, 'test': 1}
  path = os.path.join(run, 'predictions', 'test.tsv')
  with open(path, encoding='utf-8') as file:
    head, row = file.read().splitlines()
  assert head == 'id\tprediction\tprobability' and row.startswith('0\t1\t0.')
  with open(os.path.join(run, 'config.json'), encoding='utf-8') as file:
    config = json.load(file)
  assert (config['finetuning.num_choices'], config['finetuning.outputs']) == (
    3,
    1,
  )


@pytest.mark.slow
def test_the_export_is_the_run(run):
  ours, theirs = (source.read(x) for x in (run, os.path.join(run, 'export')))
  assert ours.head.task == theirs.head.task == 'choice'
  assert ours.head.columns == theirs.head.columns == ('context', '', 'of')
  models.assert_same(
    ours.head.add_to(ours.params), theirs.head.add_to(theirs.params)
  )
  with open(os.path.join(run, 'export', 'README.md'), encoding='utf-8') as file:
    assert 'AutoModelForMultipleChoice' in file.read()


@pytest.mark.slow
def test_choices_of_a_file_are_predicted_in_order(run, tmp_path):
  # Another number of choices than in training.
  rows = [['dog', 'cats'], ['cat', 'the dog'], ['e', 'the cat']]
  given, output = tmp_path / 'in.jsonl', str(tmp_path / 'out.jsonl')
  given.write_text(
    '\n'.join(json.dumps({'context': 'the', 'of': row}) for row in rows)
  )
  for model in (run, os.path.join(run, 'export')):
    assert predict.predict(model, str(given), output, batch_size=4) == 3
    with open(output, encoding='utf-8') as file:
      found = [json.loads(line) for line in file]
    assert [row['prediction'] for row in found] == ['1', '0', '1']
    assert sum(found[0]['probabilities'].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_choices_of_a_labelled_file_are_scored(run, tmp_path):
  dev = os.path.join(os.path.dirname(run), 'rows', 'dev.jsonl')
  output = str(tmp_path / 'out.csv')
  predict.predict(run, dev, output, label='label', keep=['label'])
  with open(tmp_path / 'out.scores.json', encoding='utf-8') as file:
    assert json.load(file)['metrics'] == {'accuracy': 1}
  with open(output, encoding='utf-8') as file:
    rows = [line.split(',')[:2] for line in file.read().splitlines()[1:]]
  assert len(rows) == 10 and all(a == b for a, b in rows)


def test_choices_that_are_truncated_are_said(tmp_path, capsys):
  params = models.make_params(made.BERT)
  kernel, bias = np.ones((8, 1), np.float32), np.zeros(1, np.float32)
  columns = 'context', '', 'of'
  head = classifier.Head(kernel, bias, (), 8, columns, 'choice')
  hf_export.export(
    str(tmp_path / 'model'), params, made.BERT, False, models.TOKENIZER, None,
    head,
  )  # fmt: skip
  # [CLS] the [SEP] and choices of 4, 5 and 6 tokens with their [SEP].
  rows = [{'context': 'the', 'of': ['the ' * i for i in (4, 5, 6)]}] * 2
  given = tmp_path / 'in.jsonl'
  given.write_text('\n'.join(map(json.dumps, rows)))
  count = predict.predict(
    str(tmp_path / 'model'), str(given), str(tmp_path / 'out.csv')
  )
  assert count == 2
  assert 'truncated to 8 tokens: 4 choices\n' in capsys.readouterr().out


def test_without_data_there_are_as_many_choices_as_in_swag():
  c = config_lib.finetuning()
  c.task = 'choice'
  objective = choose.make_objective(c)
  assert objective.expected_loss == pytest.approx(np.log(4))
