"""Tests of the scores of a sweep."""

import pytest

from bert_jax import config as config_lib
from bert_jax.sweep import grid, summary


def make_runs(text='learning_rate=1e-5,2e-5 seed=0,1,2'):
  return grid.parse(text, config_lib.finetuning())


def make_results(value, problem=None, metric='f1'):
  return {
    'metrics': {metric: value, 'accuracy': 0.5},
    'baseline': {metric: 0.25, 'accuracy': 0.5},
    'problem': problem,
    'task': 'mrpc',
    'init_from': 'runs/base',
    'counts': {'dev': 408},
  }


def summarise(values, runs=None):
  runs = runs or make_runs()
  results = {
    run.name: x if isinstance(x, dict) else make_results(x)
    for run, x in zip(runs, values, strict=True)
    if x is not None
  }
  return summary.summarise(runs, results)


def test_mean_and_deviation_are_over_the_seeds_of_a_setting():
  found = summarise([0.5, 0.75, 1.0, 0.25, 0.25, 0.25])
  first, second = found['settings']
  assert first['fields'] == {'learning_rate': '1e-05'}
  assert (first['mean'], first['std'], first['best']) == (0.75, 0.25, 1.0)
  assert (second['mean'], second['std']) == (0.25, 0.0)
  assert first['metric'] == 'f1' and first['baseline'] == 0.25
  assert found['best'] == {
    'run': 'learning_rate=1e-05,seed=2',
    'metric': 'f1',
    'value': 1.0,
  }
  assert found['best_setting'] == {
    'fields': {'learning_rate': '1e-05'},
    'metric': 'f1',
    'mean': 0.75,
  }


def test_the_best_run_need_not_be_of_the_best_setting():
  found = summarise([0.0, 0.0, 1.0, 0.5, 0.5, 0.5])
  assert found['best']['run'] == 'learning_rate=1e-05,seed=2'
  assert found['best_setting']['fields'] == {'learning_rate': '2e-05'}


def test_runs_that_are_not_done_are_left_out():
  found = summarise([0.5, None, None, None, None, None])
  first, second = found['settings']
  assert (found['runs'], found['done']) == (6, 1)
  assert (first['mean'], first['std']) == (0.5, None)
  assert (second['runs'], second['metric'], second['mean']) == (3, None, None)
  assert summarise([None] * 6)['best'] is None


def test_runs_that_learnt_nothing_are_named():
  bad = make_results(0.25, 'all the same')
  [first, _] = summarise([0.5, bad, 0.5, 1, 1, 1])['settings']
  assert first['problems'] == {'learning_rate=1e-05,seed=1': 'all the same'}


def test_what_all_runs_share_is_told_and_what_they_do_not_is_not():
  other = make_results(1.0) | {'task': 'rte'}
  found = summarise([make_results(0.5), other, None], make_runs('seed=0,1,2'))
  expected = {'task': None, 'init_from': 'runs/base', 'rows': 408}
  assert found['about'] == expected
  assert set(summarise([None] * 6)['about'].values()) == {None}


def test_different_metrics_are_not_compared():
  runs = make_runs('glue=mrpc,rte')
  found = summarise([0.9, make_results(0.5, metric='accuracy')], runs)
  assert [x['metric'] for x in found['settings']] == ['f1', 'accuracy']
  assert found['best'] is None and found['best_setting'] is None


def test_the_order_in_which_runs_were_done_does_not_matter():
  runs = make_runs()
  results = {run.name: make_results(i / 8) for i, run in enumerate(runs)}
  other = dict(reversed(results.items()))
  assert repr(summary.summarise(runs, results)) == repr(
    summary.summarise(runs, other)
  )
  assert summary.summarise(runs, results)['done'] == pytest.approx(6)
