"""Tests of the runs of a table, and of what tells whether a claim is shown."""

import json
import runpy

import numpy as np
import pytest

from bert_jax.config import pretraining
from bert_jax.finetuning import starting
from bert_jax.finetuning.readers import glue
from bert_jax.reproduce import runs
from tests.finetuning import spans_test

PATH = 'configs/tables.py'
TABLES = runpy.run_path(PATH)['get_tables']
_SQUAD = spans_test.make_squad(
  (f'{i}', 'who?', 'a cat and a dog', [(x, 2)])
  for i, x in enumerate(('cat', 'cat and'))
)


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
      (folder / known.files[split]).write_text(text)
  for folder, file, text in (
    ('SQuAD', '{}-v1.1.json', json.dumps(_SQUAD)),
    ('CoNLL-2003', '{}.conll', 'Ann B-PER\nran O\n'),
  ):
    (root / folder).mkdir()
    for split in ('train', 'dev'):
      (root / folder / file.format(split)).write_text(text)
  return str(root)


def list_runs(table, c, data):
  return runs.list_runs(table, c, 'configs/tiny.py:x=/y', '/runs', data)


def make_config(budget):
  return runpy.run_path('configs/budget.py')['get_config'](budget)


@pytest.mark.parametrize('budget', ['cpu_quarter', 'v5e4_day'])
@pytest.mark.parametrize(
  ('number', 'models', 'cells'),
  [
    # The ways of ELMo, without SQuAD, and of GPT, without NER, too.
    ('5', 4 * 5, (4 * 6 + 5 + 4) * 5),
    ('6', None, None),
    ('7', 5, 7 * 5),
    ('8', 30, 90),
    ('figure5', 8 * 3, 8 * 3 * 3),
  ],
)
def test_every_run_of_a_table_can_work(data, budget, number, models, cells):
  c = make_config(budget)
  table = TABLES(c)[number]
  found = list_runs(table, c, data)
  every = {run for own in found.values() for run in own}
  starts = {run for run in every if not run.needs}
  if number == '6':  # of 3 or 6 sizes, all but one at equal FLOPs, too
    models = {'cpu_quarter': 5, 'v5e4_day': 11}[budget] * 3
    cells = models * 3
  assert len(starts) == models and len(every - starts) == cells
  names = {run.name for run in every}
  assert len(names) == len(every)
  assert not [x for x in names if ',' in x]  # to init_from, these are two
  needed = {name for run in every - starts for name in run.needs}
  assert needed == {x.name for x in starts}
  assert all(runs.count_flops(run.config) > 0 for run in every)
  for run in every - starts:
    starting._check_layers(run.config)  # there are as many as features need


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
    row: runs.count_flops(own[0].config)
    for (row, column), own in found.items()
    if not column
  }
  first = costs['2x128x2']
  assert costs['4x256x4'] > 1.5 * first
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


def make_run(task, needs=('seed=0',), **data):
  c = pretraining('tiny')
  c.task = task
  c.data.update(data)
  return runs.Run('x', '', {}, c, needs)


def test_what_a_run_got_right_is_read_from_what_it_leaves(tmp_path, data):
  folder = tmp_path / 'predictions'
  folder.mkdir()

  def read(run):
    counts = runs.read_counts(run, str(tmp_path))
    return counts.tolist(), float(runs.score(counts.sum(0)))

  (folder / 'dev.tsv').write_text(
    'id\tlabel\tprediction\n0\ta\ta\n1\tb\ta\n2\tb\tb\n3\tb\tb\n'
  )
  rows = [[1, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]
  assert read(make_run('classification')) == (rows, 75)
  (folder / 'dev.conll').write_text(
    'Ann B-PER B-PER\nran O B-LOC\n\nBob B-PER O\n'.replace(' ', '\t')
  )
  assert read(make_run('tagging')) == ([[1, 2, 1], [0, 0, 1]], 50)
  (folder / 'dev.conll').write_text('ran\tO\tO\n')
  assert read(make_run('tagging')) == ([[0, 0, 0]], 0)
  (folder / 'dev.predictions.json').write_text('{"1": "cat", "0": "cat"}')
  files = ','.join(f'{x}={data}/SQuAD/{x}-v1.1.json' for x in ('train', 'dev'))
  counts, f1 = read(make_run('spans', input=files))
  assert counts == [[pytest.approx(2 / 3), 1, 1], [1, 1, 1]]
  assert f1 == pytest.approx(500 / 6)
  results = {'metrics': {'mlm_perplexity': 12.5}}
  (tmp_path / 'results.json').write_text(json.dumps(results))
  assert read(make_run('pretraining', needs=())) == ([[0.125, 1, 1]], 12.5)


def make_counts(shares, rows=400):
  """Returns counts of seeds that get these shares of the rows right."""
  hits = np.stack([np.arange(rows) < share * rows for share in shares])
  return np.stack([hits, *np.ones((2, *hits.shape))], -1)


def test_resamples_are_of_seeds_and_of_rows():
  ours = make_counts([0.6, 0.8, 0.7])
  assert not runs.compare(ours, ours).any()
  # All seeds alike: what is left is the choice of rows, of which 40 differ.
  alike, better = make_counts([0.5] * 3), make_counts([0.6] * 3)
  drawn = runs.compare(better, alike)
  assert drawn.mean() == pytest.approx(10, abs=0.3)
  assert drawn.std() == pytest.approx(100 * (0.1 * 0.9 / 400) ** 0.5, rel=0.1)
  # One row: what is left is the choice of seeds.
  seeds = np.array([0.01, 0.02, 0.06]).reshape(3, 1, 1)
  ours = np.concatenate([seeds, *np.ones((2, 3, 1, 1))], -1)
  drawn = runs.compare(ours, ours * [[[0, 1, 1]]])
  assert drawn.mean() == pytest.approx(3, abs=0.15)
  spread = np.std([1, 2, 6]) / 3**0.5
  assert drawn.std() == pytest.approx(spread, rel=0.1)
  # The seeds of both are drawn together.
  pairs = runs.compare(make_counts([0.2, 0.9]), make_counts([0.1, 0.8]))
  assert pairs.std() < 3


def test_claims_about_nothing_are_seldom_shown(monkeypatch):
  monkeypatch.setattr(runs, '_RESAMPLES', 200)
  rng = np.random.default_rng(1)

  def draw(seeds, rows=60):
    """Returns counts of models that differ as much as their seeds do."""
    skill = rng.normal(0.4, 1, (seeds, 1)) + rng.normal(0, 1, rows)
    hits = skill + rng.normal(0, 1, (seeds, rows)) > 0
    return np.stack([hits, *np.ones((2, *hits.shape))], -1)

  shown = {
    seeds: np.mean(
      [
        np.quantile(runs.compare(draw(seeds), draw(seeds)), 0.025) > 0
        for _ in range(100)
      ]
    )
    for seeds in (2, 5)
  }
  assert 0 < shown[5] < 0.1 and shown[2] < 0.2
