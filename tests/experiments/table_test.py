"""Tests of the scores of a sweep: as JSON and as a table."""

from bert_jax.config import recipes
from bert_jax.experiments import grid, table


def make_runs(text='learning_rate=1e-5,2e-5 seed=0,1,2'):
  return grid.parse(text, recipes.finetuning(), '')


def make_results(value, problem=None, metric='f1'):
  return {
    'metrics': {metric: value, 'accuracy': 0.5},
    'baseline': {metric: 0.25, 'accuracy': 0.5},
    'problem': problem,
    'select': 'last',
  }


def summarise(values, runs=None):
  runs = runs or make_runs()
  found = {
    run.name: x if isinstance(x, dict) else make_results(x)
    for run, x in zip(runs, values, strict=True)
    if x is not None
  }
  summary = table.summarise(runs, found)
  # The order in which runs were done does not matter.
  other = dict(reversed(found.items()))
  assert repr(summary) == repr(table.summarise(runs, other))
  return summary


def test_mean_and_deviation_are_over_the_seeds_of_a_setting():
  found = summarise([0.5, 0.0, 1.0, 0.75, 0.75, 0.75])
  first, second = found['settings']
  assert first['fields'] == {'learning_rate': '1e-05'}
  assert (first['mean'], first['std'], first['best']) == (0.5, 0.5, 1.0)
  assert (second['mean'], second['std']) == (0.75, 0.0)
  assert first['metric'] == 'f1' and first['baseline'] == 0.25
  best = {'run': 'learning_rate=1e-05,seed=2', 'metric': 'f1', 'value': 1.0}
  assert found['best'] == best  # which is not of the best setting
  assert found['best_setting'] == {
    'fields': {'learning_rate': '2e-05'},
    'metric': 'f1',
    'mean': 0.75,
  }


def test_runs_that_are_not_done_are_left_out():
  found = summarise([0.5, None, None, None, None, None])
  first, second = found['settings']
  assert (found['runs'], found['done']) == (6, 1)
  assert (first['mean'], first['std']) == (0.5, None)
  assert (second['runs'], second['metric'], second['mean']) == (3, None, None)
  assert summarise([None] * 6)['best'] is None


def test_different_metrics_are_not_compared():
  runs = make_runs('glue=mrpc,rte')
  found = summarise([0.9, make_results(0.5, metric='accuracy')], runs)
  assert [x['metric'] for x in found['settings']] == ['f1', 'accuracy']
  assert found['best'] is None and found['best_setting'] is None


def test_the_table_has_a_line_for_each_setting():
  poor = make_results(0.0, 'all the same')
  summary = summarise([poor, 1.0, None, None, None, None])
  head, *lines = table.render(summary)
  assert head.split() == ['learning_rate', 'done', 'f1', 'best', 'constant']
  assert lines == [
    '1e-05          2/3   0.5000 ± 0.7071  1.0000  0.2500'
    '    1 may have learnt nothing',
    '2e-05          0/3',
  ]
  words = {'counted_words': {'metrics': {'f1': 0.5}, 'problem': 'no better'}}
  summary = summarise([poor | words, 1.0, None, None, None, None])
  head, line, *_ = table.render(summary)
  assert head.endswith('best    constant  counting words')
  assert line.endswith(
    '0.5000          1 may have learnt nothing, 1 no better than counting words'
  )
  chosen = [x | {'select': 'best'} for x in (poor, make_results(1.0))]
  summary = summarise([*chosen, None, None, None, None])
  assert 'f1 of the best epoch' in table.render(summary)[0]


def test_the_mean_is_of_the_best_setting_of_each_task():
  runs = make_runs('glue=mrpc,rte learning_rate=1e-5,2e-5')
  rte = [make_results(x, metric='matthews') for x in (0.5, 0.75)]
  found = summarise([0.875, 0.25, *rte], runs)['glue']
  assert found['mean'] == (0.875 + 0.75) / 2
  assert found['tasks']['rte'] == {
    'fields': {'glue': 'rte', 'learning_rate': '2e-05'},
    'metric': 'matthews',
    'mean': 0.75,
    'run': 'glue=rte,learning_rate=2e-05',
  }
  assert summarise([1.0] * 6)['glue'] is None
