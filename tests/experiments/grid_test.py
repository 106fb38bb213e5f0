"""Tests of the runs of a grid, and of a table of the paper."""

import json
import runpy

import pytest

from bert_jax import errors
from bert_jax.config import pretraining, recipes
from bert_jax.experiments import grid
from bert_jax.finetuning.readers import glue
from bert_jax.inference import fine_tuned
from bert_jax.model import classifier
from tests.finetuning import spans_test

PATH = 'configs/tables.py'
TABLES = runpy.run_path(PATH)['get_tables']
SQUAD = spans_test.make_squad(
  (f'{i}', 'who?', 'a cat and a dog', [(x, 2)])
  for i, x in enumerate(('cat', 'cat and'))
)


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
    ('learning_rate=-1', 'learning_rate=.* nothing else is below 0'),
  ],
)
def test_a_grid_that_cannot_work_is_refused(text, words):
  with pytest.raises(errors.UserError, match=words):
    parse(text)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Returns a folder with all evaluation sets, of a few rows each."""
  root = tmp_path_factory.mktemp('data')
  for name in ('mnli', 'qnli', 'mrpc', 'sst2'):
    known = glue.TASKS[name]
    folder = root / known.folder
    folder.mkdir()
    columns = [x for x in (known.text, known.pair, known.label) if x]
    rows = [columns, ['a', 'b', known.labels[0]][-len(columns) :]]
    text = ''.join('\t'.join(x) + '\n' for x in rows)
    for split in ('train', 'dev'):
      (folder / f'{split}.tsv').write_text(text)
  for folder, file, text in (
    ('SQuAD', '{}-v1.1.json', json.dumps(SQUAD)),
    ('CoNLL-2003', '{}.conll', 'Ann B-PER\nran O\n'),
  ):
    (root / folder).mkdir()
    for split in ('train', 'dev'):
      (root / folder / file.format(split)).write_text(text)
  return str(root)


def list_runs(table, c, data):
  return grid.list_runs(table, c, 'configs/tiny.py:x=/y', '/runs', data)


def make_config(budget):
  return runpy.run_path('configs/budget.py')['get_config'](budget)


@pytest.mark.parametrize(
  ('budget', 'number', 'models', 'cells'),
  [
    # The ways of ELMo, without SQuAD, and of GPT, without NER, too.
    ('cpu_quarter', '5', 4 * 5, (4 * 6 + 5 + 4) * 5),
    # 3 or 6 sizes, all but one at equal FLOPs, too.
    ('cpu_quarter', '6', 5 * 3, 5 * 3 * 3),
    ('v5e4_day', '7', 5, 7 * 5),
    *(
      pytest.param(*row, marks=pytest.mark.slow)
      for row in (
        ('v5e4_day', '6', 11 * 3, 11 * 3 * 3),
        ('cpu_quarter', '8', 30, 90),
        ('v5e4_day', 'figure5', 8 * 3, 8 * 3 * 3),
      )
    ),
  ],
)
def test_every_run_of_a_table_can_work(data, budget, number, models, cells):
  c = make_config(budget)
  table = TABLES(c)[number]
  found = list_runs(table, c, data)
  every = {run for own in found.values() for run in own}
  starts = {run for run in every if not run.needs}
  assert len(starts) == models and len(every - starts) == cells
  names = {run.name for run in every}
  assert len(names) == len(every)
  assert not [x for x in names if ',' in x]  # to init_from, these are two
  needed = {name for run in every - starts for name in run.needs}
  assert needed == {x.name for x in starts}
  assert all(grid.count_flops(run.config) > 0 for run in every)
  for run in every - starts:
    name, layers = run.config.finetuning.features, run.config.model.num_layers
    if name != fine_tuned.NO_FEATURES:  # there are as many as they need
      classifier.check_layers('features', name, layers)


def test_rows_differ_in_what_the_table_is_about(data):
  c = pretraining('tiny')
  found = list_runs(TABLES(c)['5'], c, data)
  bert, ltr, more = (
    found[row, 'QNLI'][3] for row in ('BERT', 'LTR & No NSP', '+ BiLSTM')
  )
  assert bert.name == 'seed=3+QNLI' and bert.needs == ('seed=3',)
  assert bert.fields == {
    'init_from': '/runs/seed=3',
    'data.input': data,
    'seed': 3,
  }
  assert ltr.needs == more.needs == ('kind=ltr+nsp=False+seed=3',)
  both = found['as ELMo', 'QNLI'][3]
  assert both.needs == (*ltr.needs, 'kind=rtl+nsp=False+seed=3')
  assert both.fields['init_from'] == ','.join(f'/runs/{x}' for x in both.needs)
  assert not {('as ELMo', 'SQuAD'), ('as GPT', 'NER')} & found.keys()
  assert more.fields['model.bilstm'] == 128 and more.name != ltr.name
  for table in ('6', '8'):  # a row of each is the budget's
    names = {
      run.name
      for x in list_runs(TABLES(c)[table], c, data).values()
      for run in x
    }
    assert {'seed=0', 'seed=0+MNLI'} <= names
  first = found['BERT', ''][3]
  assert first.fields == {'seed': 3, 'data.dir': '/runs/data'}
  assert found['+ BiLSTM', ''] == found['LTR & No NSP', '']


def test_equal_flops_are_equal(data):
  c = make_config('cpu_quarter')
  found = list_runs(TABLES(c)['6'], c, data)
  costs = {
    row: grid.count_flops(own[0].config)
    for (row, column), own in found.items()
    if not column
  }
  first = costs['2x128x2']
  assert costs['4x256x4'] > 1.5 * first
  wide = found['4x256x4', ''][0].config.phases.learning_rates
  assert wide == (1e-3, 0.0, 0.0, 5e-4)  # half of the budget's
  for row in ('4x128x2, equal FLOPs', '4x256x4, equal FLOPs'):
    assert abs(costs[row] / first - 1) < 1e-3


def test_claims_are_the_papers():
  tables = TABLES(pretraining('tiny'))
  claims = tables['5'].list_claims()
  assert ('QNLI', 'BERT', 'No NSP') in claims
  assert ('MRPC', 'LTR & No NSP', '+ BiLSTM') in claims
  assert ('SQuAD', '+ BiLSTM', 'LTR & No NSP') in claims
  # Equal in the paper.
  assert not [x for x in claims if x[0] == 'MNLI-m' and '+ BiLSTM' in x]
  # Of the perplexity, less is better.
  assert ('perplexity', '4x128x2', '2x128x2') in tables['6'].list_claims()
  assert ('NER', '80/10/10', '100/0/0') in tables['8'].list_claims()
  assert ('MNLI-m', '100/0/0', '80/10/10') in tables['8'].list_claims()
