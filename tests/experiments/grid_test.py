"""Tests of the runs that a grid makes."""

import pytest

from bert_jax import errors
from bert_jax.config import recipes
from bert_jax.experiments import grid


def parse(text):
  return grid.parse(text, recipes.finetuning(), 'x.py')


def test_every_combination_is_a_run_with_a_readable_folder():
  runs = parse('seed=0,1 learning_rate=2e-5,3e-5 phases.batch_size=16')
  assert [run.name for run in runs] == [
    'learning_rate=2e-05,batch_size=16,seed=0',
    'learning_rate=2e-05,batch_size=16,seed=1',
    'learning_rate=3e-05,batch_size=16,seed=0',
    'learning_rate=3e-05,batch_size=16,seed=1',
  ]
  assert runs[3].fields == {
    'optimizer.learning_rate': 3e-5,
    'phases.batch_size': (16,),
    'seed': 1,
  }
  texts = {'learning_rate': '3e-05', 'batch_size': '16', 'seed': '1'}
  assert grid.describe(runs[3].fields) == texts
  assert runs[3].config.optimizer.learning_rate == 3e-5


def test_a_value_is_in_the_folder_as_the_config_has_it():
  [run] = parse('learning_rate=0.00002')
  assert run.name == 'learning_rate=2e-05'
  [run] = parse('eval.every=7')  # other sections have `every`, too
  assert run.name == 'eval.every=7'


def test_paths_become_parts_of_names():
  runs = parse('init_from=/data/runs/base@500,gs://b/base@1000')
  assert [run.name for run in runs] == [
    'init_from=data_runs_base@500',
    'init_from=gs_b_base@1000',
  ]
  assert runs[0].fields == {'init_from': '/data/runs/base@500'}
  assert grid.describe(runs[0].fields) == runs[0].fields


def test_all_are_the_tasks_of_the_folder_without_wnli(tmp_path):
  for name in ('MRPC', 'RTE', 'WNLI'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'train.tsv').touch()
  config = recipes.finetuning()
  config.data.input = str(tmp_path)
  runs = grid.parse('glue=all seed=0,1', config, 'x.py')
  names = ['glue=mrpc,seed=0', 'glue=mrpc,seed=1', 'glue=rte,seed=0']
  assert [x.name for x in runs] == [*names, 'glue=rte,seed=1']
  assert runs[0].fields == {'finetuning.glue': 'mrpc', 'seed': 0}
  config.data.input = 'nowhere'
  with pytest.raises(errors.UserError, match='nowhere has no task of GLUE'):
    grid.parse('glue=all', config, 'x.py')


@pytest.mark.parametrize(
  'text, words',
  [
    ('', "'' is not FIELD=VALUE"),
    ('learning_rate', "'learning_rate' is not FIELD=VALUE"),
    ('learning_rat=1', "'learning_rat' is unknown; did you mean learning_rate"),
    ('seed=zero', 'seed=zero: is not a whole number'),
    ('seed=1,2,1', 'two runs with the folder seed=1'),
    ('init_from=a/b,a_b', 'two runs with the folder init_from=a_b'),
    ('learning_rate=-1', 'learning_rate=-1'),
  ],
)
def test_a_grid_that_cannot_work_is_refused(text, words):
  with pytest.raises(errors.UserError, match=words):
    parse(text)
