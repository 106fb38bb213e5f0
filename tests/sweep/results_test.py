"""Tests of the scores of a sweep: as JSON, as a table and as a picture."""

import zipfile

import pytest

from bert_jax.config import recipes
from bert_jax.sweep import grid, results


def make_runs(text='learning_rate=1e-5,2e-5 seed=0,1,2'):
  return grid.parse(text, recipes.finetuning())


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
  summary = results.summarise(runs, found)
  # The order in which runs were done does not matter.
  other = dict(reversed(found.items()))
  assert repr(summary) == repr(results.summarise(runs, other))
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
  head, *lines = results.render(summary)
  assert head.split() == ['learning_rate', 'done', 'f1', 'best', 'constant']
  assert lines == [
    '1e-05          2/3   0.5000 ± 0.7071  1.0000  0.2500'
    '    1 may have learnt nothing',
    '2e-05          0/3',
  ]
  chosen = [x | {'select': 'best'} for x in (poor, make_results(1.0))]
  summary = summarise([*chosen, None, None, None, None])
  assert 'f1 of the best epoch' in results.render(summary)[0]


def draw(values, text):
  pytest.importorskip('matplotlib')
  settings = summarise(values, make_runs(text))['settings']
  [axis] = results.make_figure(settings).axes
  points = [x for x in axis.lines if x.get_marker() == 'o']
  return axis, [x.get_xydata().tolist() for x in points]


def test_learning_rates_stand_at_their_logarithms_with_their_own_names():
  rates = ['0.0001', '0.001', '0.01']
  axis, points = draw([0.5] * 6, f'learning_rate={",".join(rates)} seed=0,1')
  assert [x.get_text() for x in axis.get_xticklabels()] == rates
  assert axis.get_xscale() == 'log' and axis.get_xlabel() == 'learning_rate'
  assert points == [[[rate, 0.5]] * 2 for rate in (1e-4, 1e-3, 1e-2)]


def test_a_setting_without_a_number_has_its_name():
  axis, points = draw([0.5, 0.75, 0.25, 1], 'init_from=a,b seed=0,1')
  assert points == [[[0, 0.5], [0, 0.75]], [[1, 0.25], [1, 1]]]
  names = [x.get_text() for x in axis.get_xticklabels()]
  assert names == ['init_from=a', 'init_from=b']
  assert axis.get_ylabel() == 'f1 on dev'
  lines = [x.get_ydata()[0] for x in axis.lines if x.get_marker() == '_']
  assert lines == [0.625, 0.25, 0.625, 0.25]  # means and a constant's scores


@pytest.mark.parametrize(
  'settings, expected',
  [
    ([{'a': '1e-5'}, {'a': '2e-5'}], ('a', [1e-5, 2e-5])),
    ([{'a': 'r@100'}, {'a': 'r@3000'}], ('steps of r', [100, 3000])),
    ([{'a': 'r@1'}, {'a': 's@2'}], ('', [])),
    ([{'a': 'r@1'}, {'a': 'r'}], ('', [])),
    ([{'a': '1'}], ('', [])),
    ([{'a': '1'}, {'a': 'x'}], ('', [])),
    ([{'a': '0'}, {'a': '1'}], ('', [])),  # which has no logarithm
    ([{'a': '1', 'b': '1'}, {'a': '2', 'b': '1'}], ('', [])),
  ],
)
def test_one_field_with_positive_numbers_is_an_axis(settings, expected):
  assert results.find_axis(settings) == expected


def test_a_picture_is_written(tmp_path):
  pytest.importorskip('matplotlib')
  path, summary = tmp_path / 'a.png', summarise([1, 0, 0, None, None, None])
  results.draw(str(path), summary)
  assert path.read_bytes().startswith(b'\x89PNG')


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
  c = recipes.finetuning()
  c.data.input = str(tmp_path / 'glue')
  return c


def summarise_glue(config):
  """Returns the summary of two rates for each of two tasks."""
  runs = grid.parse('glue=all learning_rate=1e-5,2e-5', config)
  rte = [make_results(x, metric='matthews') for x in (0.5, 0.75)]
  return summarise([0.875, 0.25, *rte], runs)


def test_the_mean_is_of_the_best_setting_of_each_task(config):
  found = summarise_glue(config)['glue']
  assert found['mean'] == (0.875 + 0.75) / 2
  assert found['tasks']['rte'] == {
    'fields': {'glue': 'rte', 'learning_rate': '2e-05'},
    'metric': 'matthews',
    'mean': 0.75,
    'run': 'glue=rte,learning_rate=2e-05',
  }
  assert summarise([1.0] * 6)['glue'] is None


def test_the_submission_has_the_best_runs_and_wnlis_commonest_class(
  config, tmp_path
):
  tasks = summarise_glue(config)['glue']['tasks']
  path, sweep = str(tmp_path / 'submission.zip'), tmp_path / 'sweep'

  def write():
    return results.write_submission(path, str(sweep), tasks, config)

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
  (tmp_path / 'glue' / 'WNLI' / 'test.tsv').unlink()
  assert 'WNLI.tsv' in write()
