"""Tests of whole runs of a tiny model, one of each kind of task."""

import json
import os

import pytest

from bert_jax import errors
from bert_jax.inference import source
from tests.finetuning import (
  choices_test,
  classes_test,
  made,
  spans_test,
  tags_test,
)

TAGGED = ['the\tO', 'dog\tB-ORG', 'e\tI-ORG', '', 'cats\tB-PER', '']
SETS = 'id\tlabel\tprediction\tprobability_cat\tprobability_pet'


KINDS = [
  (tags_test.make_config, 'words/dev.conll', ['--label=-1'], {}),
  (choices_test.configure, 'rows/dev.jsonl', ['--label=label'], {}),
  (spans_test.make_config, 'questions/dev.json', [], {'unanswerable': True}),
  (classes_test.configure_sets, 'texts/dev.jsonl', ['--label=label'], {}),
  (classes_test.configure_gpt, 'texts/dev.csv', ['--label=label'], {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
  'make_config, given, flags, known, bert',
  [(*kind, made.BERT) for kind in KINDS]
  + [(*kind, made.MODERN) for kind in KINDS[:-1]],
)
def test_a_run_learns_and_its_export_scores_the_same(
  tmp_path, monkeypatch, make_config, given, flags, known, bert
):
  monkeypatch.setattr(made, 'BERT', bert)
  run = made.train(make_config(tmp_path, **known), tmp_path)
  found = made.read_json(run, 'results.json')
  assert found['problem'] is None and min(found['metrics'].values()) > 0.9
  assert max(found['baseline'].values()) < 0.7
  model = run
  if os.path.exists(f'{run}/export'):
    made.read_with_export(run)
    model = f'{run}/export'
  head = source.read(model).head
  assert not head.settings or head.settings.threshold == found['threshold']
  output = str(tmp_path / f'out.{given.partition(".")[2]}')
  made.predict(model, f'{tmp_path}/{given}', output, *flags)
  scored = made.read_json(tmp_path, 'out.scores.json')
  assert scored == {name: found[name] for name in scored}
  CHECKS[head.task](run, tmp_path, output)


def check_tags(run, tmp_path, output):
  assert made.read_lines(run, 'predictions', 'test.conll') == TAGGED
  dev = made.read_lines(tmp_path, 'words', 'dev.conll')
  assert made.read_lines(output) == dev


def check_gpt(run, tmp_path, output):
  assert not os.path.exists(f'{run}/export')  # transformers has no such model
  logged = [x['half_lm_loss'] for x in made.list_logged(run, 'train')]
  assert logged[-1] < logged[0]


def check_choices(run, tmp_path, output):
  # Another number of choices than in training.
  rows = [['dog', 'cats'], ['cat', 'the dog'], ['e', 'the cat']]
  rows = [{'context': 'the', 'of': row} for row in rows]
  given = choices_test.write(tmp_path / 'in.jsonl', rows)
  made.predict(f'{run}/export', given, output, '--batch_size=4')
  found = [json.loads(line) for line in made.read_lines(output)]
  assert [row['prediction'] for row in found] == ['1', '0', '1']


def check_spans(run, tmp_path, output):
  answers, odds = (
    made.read_json(run, 'predictions', f'dev.{x}.json')
    for x in ('predictions', 'null_odds')
  )
  assert made.read_json(output) == answers
  threshold = made.read_json(run, 'results.json')['threshold']
  for name, answer in answers.items():
    assert (odds[name] > threshold) == (answer == '')
  rows = [('a', 'dog', 'the the DOG Cats the', ()), ('c', 'cat', '', ())]
  given = spans_test.write_squad(tmp_path / 'in.json', rows)
  made.predict(f'{run}/export', given, output)
  assert made.read_json(output) == {'a': 'DOG', 'c': ''}


def check_sets(run, tmp_path, output):
  tsv = made.read_lines(run, 'predictions', 'dev.tsv')
  assert tsv[0] == SETS
  assert [x.split('\t')[:3] for x in tsv[1:4]] == [
    ['0', '["cat", "pet"]', '["cat", "pet"]'],
    ['1', '["pet"]', '["pet"]'],
    ['2', '[]', '[]'],
  ]
  first = json.loads(made.read_lines(output)[0])
  assert first['prediction'] == ['cat', 'pet']
  assert first['probabilities'].keys() == {'cat', 'pet'}
  card = '\n'.join(made.read_lines(run, 'export', 'README.md'))
  assert '* a text has a label if its probability is above ' in card
  # What is written is read, and its columns are not kept beside new ones.
  table = str(tmp_path / 'x.csv')
  dev = os.path.join(tmp_path, 'texts', 'dev.jsonl')
  made.predict(run, dev, table, '--keep=text')
  made.predict(run, table, str(tmp_path / 'y.csv'), '--label=prediction')
  with pytest.raises(errors.UserError, match="'probability_cat' is written"):
    made.predict(run, table, str(tmp_path / 'y.csv'), '--keep=probability_cat')


CHECKS = {
  'classification': check_gpt,
  'tagging': check_tags,
  'choice': check_choices,
  'spans': check_spans,
  'multi_label': check_sets,
}
