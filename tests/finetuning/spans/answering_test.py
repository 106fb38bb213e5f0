"""Tests of answering questions, in whole runs of a tiny model."""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors, main, predict, tasks
from bert_jax.finetuning import completion, task_data
from bert_jax.finetuning.spans import answering, span_data
from bert_jax.inference import source
from bert_jax.model import tagger
from bert_jax.train import task as task_lib
from bert_jax.workdir import log
from tests import models
from tests.finetuning import made


def make_squad(rows):
  """Returns the content of a file of rows (id, question, passage, answers)."""
  paragraphs = [
    {
      'context': passage,
      'qas': [
        {
          'id': name,
          'question': question,
          'answers': [
            {'text': text, 'answer_start': start} for text, start in answers
          ],
          'is_impossible': not answers,
        }
      ],
    }
    for name, question, passage, answers in rows
  ]
  return {'version': '1.1', 'data': [{'paragraphs': paragraphs}]}


def write_squad(path, rows) -> str:
  path.write_text(json.dumps(make_squad(rows)))
  return str(path)


def write_questions(folder, unanswerable=False):
  """Writes questions whose answer is the animal that they name, in capitals.

  A fourth has no answer, if so wished: the passage has no such animal.
  """
  folder.mkdir()
  rows = []
  for i in range(48):
    animal = ('cat', 'dog')[i % 2]
    words = ['the'] * (2 + i % 9)  # some need two windows
    words.insert(i % 3, ('Dogs', 'Cats')[i % 2])
    there = not unanswerable or i % 4 > 0
    if there:
      words.insert(i % 5, animal.upper())
    passage = ' '.join(words)
    answers = [(animal.upper(), passage.find(animal.upper()))] if there else []
    rows.append((f'q{i}', animal, passage, answers))
  write_squad(folder / 'train.json', rows)
  write_squad(folder / 'dev.json', rows[:20])
  return str(folder)


def make_config(root, unanswerable=False, **changes):
  c = made.make_config(
    made.write_source(root / 'source'),
    write_questions(root / 'questions', unanswerable),
    **{
      'task': 'spans',
      'data.text': '',
      'data.label': '',
      'finetuning.epochs': 24.0,
      'finetuning.head_dropout': 0.0,
      'model.dropout': 0.0,
      'model.attention_dropout': 0.0,
      'finetuning.doc_stride': 3,
      'finetuning.max_query_length': 2,
      'finetuning.max_answer_length': 3,
      'finetuning.unanswerable': unanswerable,
      **changes,
    },
  )
  return c


def read_json(*path):
  with open(os.path.join(*path), encoding='utf-8') as file:
    return json.load(file)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """Returns the working directory of a finished run."""
  root = tmp_path_factory.mktemp('spans')
  main.run(make_config(root), str(root / 'run'))
  return str(root / 'run')


@pytest.fixture(scope='module')
def unsure(tmp_path_factory):
  """Returns that of one whose questions may have no answer."""
  root = tmp_path_factory.mktemp('unsure')
  main.run(make_config(root, True), str(root / 'run'))
  return str(root / 'run')


@pytest.mark.slow
def test_a_run_learns_to_answer_and_says_how_well(run):
  found = read_json(run, 'results.json')
  assert found['metrics'] == {'f1': 1, 'exact_match': 1}
  wilson = pytest.approx([0.8389, 1], abs=1e-4)
  assert found['intervals'] == {'f1': wilson, 'exact_match': wilson}
  # It always answers CAT.
  assert found['baseline'] == {'f1': 0.5, 'exact_match': 0.5}
  assert found['problem'] is None and found['threshold'] is None
  assert found['counts'] == {'train': 48, 'dev': 20}
  rows = log.read(os.path.join(run, 'metrics.jsonl'))
  *_, last = [row for row in rows if row['kind'] == 'eval']
  assert last['f1'] == last['exact_match'] == 1 and last['accuracy'] > 0.9


@pytest.mark.slow
def test_predictions_are_files_of_the_evaluation_scripts(run, unsure):
  answers = read_json(run, 'predictions', 'dev.predictions.json')
  assert list(answers)[:3] == ['q0', 'q1', 'q2']  # in the order of the file
  assert answers == {f'q{i}': ('CAT', 'DOG')[i % 2] for i in range(20)}
  best = read_json(run, 'predictions', 'dev.nbest_predictions.json')['q1']
  assert best[0]['text'] == 'DOG' and len(best) > 3
  assert sum(x['probability'] for x in best) == pytest.approx(1)
  assert '' not in [x['text'] for x in best]
  names = set(os.listdir(os.path.join(run, 'predictions')))
  assert names == {'dev.predictions.json', 'dev.nbest_predictions.json'}
  odds = read_json(unsure, 'predictions', 'dev.null_odds.json')
  threshold = read_json(unsure, 'results.json')['threshold']
  for name, answer in read_json(
    unsure, 'predictions', 'dev.predictions.json'
  ).items():
    assert (odds[name] > threshold) == (answer == '')


@pytest.mark.slow
def test_a_run_learns_which_questions_have_no_answer(unsure):
  found = read_json(unsure, 'results.json')
  assert found['metrics']['f1'] > 0.9
  assert found['baseline'] == {'f1': 0.25, 'exact_match': 0.25}  # never answers


@pytest.mark.slow
def test_the_export_is_the_run_with_its_threshold(unsure):
  ours, theirs = (
    source.read(x) for x in (unsure, os.path.join(unsure, 'export'))
  )
  assert ours.head.task == theirs.head.task == 'spans'
  threshold = read_json(unsure, 'results.json')['threshold']
  assert ours.head.spans == theirs.head.spans == (3, 2, 3, threshold)
  assert ours.head.max_length == theirs.head.max_length == 16
  models.assert_same(
    ours.head.add_to(ours.params), theirs.head.add_to(theirs.params)
  )
  found = read_json(unsure, 'export', 'config.json')
  assert found['architectures'] == ['BertForQuestionAnswering']
  with open(os.path.join(unsure, 'export', 'README.md')) as file:
    card = file.read()
  assert 'AutoModelForQuestionAnswering' in card
  assert 'pipeline_tag: question-answering' in card


@pytest.mark.slow
@pytest.mark.parametrize('model', ['.', 'export'])
def test_a_file_is_answered_by_the_run_and_its_export(unsure, tmp_path, model):
  rows = [
    ('a', 'dog', 'the the DOG Cats the', ()),
    ('b', 'cat', 'the the Dogs the', ()),
    ('c', 'cat', '', ()),
  ]
  given = write_squad(tmp_path / 'in.json', rows)
  output = str(tmp_path / 'out.json')
  assert predict.predict(os.path.join(unsure, model), given, output) == 3
  assert read_json(output) == {'a': 'DOG', 'b': '', 'c': ''}
  # The file has the right answers, so it is scored.
  scored = read_json(tmp_path / 'out.scores.json')
  assert scored['metrics'] == {'f1': 2 / 3, 'exact_match': 2 / 3}
  with pytest.raises(errors.UserError, match='does not end in .json'):
    predict.predict(unsure, given, str(tmp_path / 'out.csv'))


@pytest.mark.slow
def test_a_run_may_start_from_an_export_with_its_head(run, tmp_path):
  c = make_config(
    tmp_path,
    init_from=os.path.join(run, 'export'),
    **{'finetuning.epochs': 0.2, 'optimizer.learning_rate': 1e-9},
  )
  main.run(c, str(tmp_path / 'run'))
  assert read_json(tmp_path / 'run', 'results.json')['metrics']['f1'] == 1


def make_module():
  c = dataclasses.replace(made.BERT, dropout=0.0, attention_dropout=0.0)
  return tagger.Tagger(c, 2, 0.0)


def make_batch():
  """Returns two rows: [CLS] q [SEP] p p p [SEP], and with less of a passage."""
  return {
    'input_ids': jnp.array([[2, 5, 3, 6, 7, 6, 3], [2, 7, 3, 6, 3, 0, 0]]),
    'input_mask': jnp.array([[1] * 7, [1, 1, 1, 1, 1, 0, 0]]),
    'segment_ids': jnp.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]]),
    'starts': jnp.array([[3, 5], [3, 4]]),
    'labels': jnp.array([[3, 4], [0, 0]]),
    'label_weights': jnp.array([1.0, 1.0]),
  }


def test_every_possible_answer_is_ranked_and_no_other():
  random = np.random.default_rng(0)
  logits = random.normal(size=(2, 7, 2)).astype(np.float32)
  found = answering.rank(jnp.array(logits), make_batch(), max_answer_length=2)
  # Starts are at 3 and 4, ends up to 5, at most two tokens together.
  for row, possible in enumerate([[(3, 3), (3, 4), (4, 4), (4, 5)], [(3, 3)]]):
    expected = sorted(
      possible, key=lambda x: -logits[row, x[0], 0] - logits[row, x[1], 1]
    )
    n = len(possible)
    got = zip(found['firsts'][row, :n], found['lasts'][row, :n], strict=True)
    assert [(int(a), int(b)) for a, b in got] == expected
    np.testing.assert_allclose(
      found['scores'][row, :n],
      [(logits[row, a, 0], logits[row, b, 1]) for a, b in expected],
      atol=1e-6,
    )
    assert not np.isfinite(found['scores'][row, n:].sum(-1)).any()
  np.testing.assert_array_equal(found['nulls'], logits[:, 0])


def compute(batch):
  params = models.make_params(made.BERT)
  params = {name: params[name] for name in ('embeddings', 'encoder')}
  kernel = np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2)
  params['classifier'] = {'kernel': kernel, 'bias': np.ones(2, np.float32)}
  sums, ranked = jax.jit(
    lambda p, b: answering.compute_sums(3, make_module(), p, b, None)
  )(params, batch)
  return {name: float(x) for name, x in sums.items()}, ranked, params


def test_the_loss_is_the_mean_of_those_of_the_first_and_the_last_token():
  batch = make_batch()
  sums, _, params = compute(batch)
  logits = make_module().apply({'params': params}, batch)
  likely = np.asarray(jax.nn.log_softmax(logits[:1], axis=1))
  expected = -(likely[0, 3, 0] + likely[0, 4, 1]) / 2
  likely = np.asarray(jax.nn.log_softmax(logits[1:, :5], axis=1))
  expected -= (likely[0, 0, 0] + likely[0, 0, 1]) / 2
  assert sums['cross_entropy'] == pytest.approx(expected, rel=1e-5)


def test_rows_of_weight_0_and_padding_change_nothing():
  batch = make_batch() | {'label_weights': jnp.array([1.0, 0.0])}
  other = batch | {'labels': batch['labels'].at[1].set(4)}
  sums, ranked, _ = compute(batch)
  assert compute(other)[0] == sums
  two = {'starts', 'labels'}
  longer = {
    name: jnp.pad(x, ((0, 0), (0, 9))) if x.ndim > 1 and name not in two else x
    for name, x in batch.items()
  }
  more, again, _ = compute(longer)
  assert more['cross_entropy'] == pytest.approx(sums['cross_entropy'], rel=1e-5)
  np.testing.assert_array_equal(ranked['firsts'][0, :5], again['firsts'][0, :5])


def test_held_out_questions_are_collected_once_each(tmp_path):
  c = make_config(tmp_path)
  c = completion.complete(span_data.make, c, str(tmp_path / 'run'))
  form, folder = span_data.FORMAT, str(tmp_path / 'data')
  task_data.write(form, c, folder, models.TOKENIZER)
  data = task_data.read(form, folder)
  [phase] = task_lib.list_phases(c)
  batches, split = tasks.get(c).make_task(c, folder), data.splits['dev']
  assert split.size > len(split.ids)  # some questions have two windows
  kept = None
  for i in range(batches.eval_batches(phase)):
    batch = batches.eval_batch(phase, i)
    # A model that is always right, where the answer is in the window.
    hit = jax.nn.one_hot(batch['labels'], phase.seq_length, axis=1) * 9
    ranked = answering.rank(hit, batch, c.finetuning.max_answer_length)
    kept = batches.collect(kept, phase, i, jax.device_get(ranked))
  assert answering.score(c, data, kept) == {'f1': 1, 'exact_match': 1}


def test_the_objective_has_the_shapes_of_the_batches(tmp_path):
  c = make_config(tmp_path)
  c = completion.complete(span_data.make, c, str(tmp_path / 'run'))
  folder = str(tmp_path / 'data')
  task_data.write(span_data.FORMAT, c, folder, models.TOKENIZER)
  [phase] = task_lib.list_phases(c)
  made = tasks.get(c).make_task(c, folder)
  batch = made.train_batch(phase, 0, np.arange(phase.batch_size))
  shapes = answering.make_objective(c).batch_shapes(phase, phase.batch_size)
  assert {name: (x.shape, x.dtype) for name, x in batch.items()} == {
    name: (x.shape, x.dtype) for name, x in shapes.items()
  }
  assert answering.describe(batch)[0].startswith('first batch: 8 windows, ')


def test_untrained_weights_are_not_expected_to_cost_a_full_row(tmp_path):
  module, batch = make_module(), make_batch()
  params = module.init(jax.random.key(0), batch, deterministic=True)['params']
  params['classifier'] = jax.tree.map(jnp.zeros_like, params['classifier'])
  sums, _ = answering.compute_sums(3, module, params, batch, None)
  guess = np.log(7) + np.log(5)  # tokens of the two rows
  np.testing.assert_allclose(sums['cross_entropy'], guess, rtol=1e-6)
  assert answering.make_objective(make_config(tmp_path)).expected_loss is None
