"""Tests of sweeps over the tasks of GLUE."""

import zipfile

import pytest

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.sweep import glue_tasks, grid
from tests.sweep import results_test


@pytest.fixture
def config(tmp_path):
  """Returns the config of a sweep over a folder with three tasks."""
  for name in ('MRPC', 'RTE', 'WNLI'):
    folder = tmp_path / 'glue' / name
    folder.mkdir(parents=True)
    text = 'index\tsentence1\tsentence2\tlabel\n'
    rows = [f'{i}\ta\tb\t{label}\n' for i, label in enumerate('01001')]
    (folder / 'train.tsv').write_text(text + ''.join(rows))
    (folder / 'test.tsv').write_text(
      'index\tsentence1\tsentence2\n7\ta\tb\n3\ta\tb\n'
    )
  c = config_lib.finetuning()
  c.data.input = str(tmp_path / 'glue')
  return c


def test_all_are_the_tasks_of_the_folder_without_wnli(config):
  runs = grid.parse('glue=all seed=0,1', config)
  names = ['glue=mrpc,seed=0', 'glue=mrpc,seed=1', 'glue=rte,seed=0']
  assert [x.name for x in runs] == [*names, 'glue=rte,seed=1']
  assert runs[0].fields == {'finetuning.glue': 'mrpc', 'seed': 0}
  config.data.input = 'nowhere'
  with pytest.raises(errors.UserError, match='nowhere has no task of GLUE'):
    grid.parse('glue=all', config)


def summarise(config):
  """Returns the summary of two rates for each of two tasks."""
  runs = grid.parse('glue=all learning_rate=1e-5,2e-5', config)
  rte = [results_test.make_results(x, metric='matthews') for x in (0.5, 0.75)]
  return results_test.summarise([0.875, 0.25, *rte], runs)


def test_the_mean_is_of_the_best_setting_of_each_task(config):
  found = summarise(config)['glue']
  assert found['mean'] == (0.875 + 0.75) / 2
  assert found['tasks']['rte'] == {
    'fields': {'glue': 'rte', 'learning_rate': '2e-05'},
    'metric': 'matthews',
    'mean': 0.75,
    'run': 'glue=rte,learning_rate=2e-05',
  }
  assert results_test.summarise([1.0] * 6)['glue'] is None


def test_the_submission_has_the_best_runs_and_wnlis_commonest_class(
  config, tmp_path
):
  tasks = summarise(config)['glue']['tasks']
  path, sweep = str(tmp_path / 'submission.zip'), tmp_path / 'sweep'

  def write():
    return glue_tasks.write_submission(path, str(sweep), tasks, config)

  assert write() is None  # no run had test files
  for name, text in (
    ('glue=rte,learning_rate=1e-05', 'worse'),
    ('glue=rte,learning_rate=2e-05', 'better'),
  ):
    (sweep / name / 'submission').mkdir(parents=True)
    (sweep / name / 'submission' / 'RTE.tsv').write_text(text)
  assert write() == [
    *('CoLA.tsv', 'SST-2.tsv', 'MRPC.tsv', 'STS-B.tsv', 'QQP.tsv'),
    *('MNLI-m.tsv', 'MNLI-mm.tsv', 'AX.tsv', 'QNLI.tsv'),
  ]
  with zipfile.ZipFile(path) as written:
    assert written.namelist() == ['RTE.tsv', 'WNLI.tsv']
    assert written.read('RTE.tsv') == b'better'
    wnli = written.read('WNLI.tsv').decode()
  assert wnli == 'index\tprediction\n7\t0\n3\t0\n'  # three of five are 0
  before = (tmp_path / 'submission.zip').read_bytes()
  write()
  assert (tmp_path / 'submission.zip').read_bytes() == before
