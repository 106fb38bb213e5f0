"""Tests of what runs got right, and of the page with its claims."""

import json
import re
import runpy

import numpy as np
import pytest

from bert_jax.config import pretraining
from bert_jax.experiments import claims, grid
from tests.experiments import grid_test

_KNOWN = runpy.run_path(grid_test.PATH)
Column, Row, Table = (_KNOWN[x] for x in ('Column', 'Row', 'Table'))


def make_table():
  return Table(
    'Table 9',
    {
      'perplexity': Column(),
      'X': Column('x.py', 'X'),
      'Y': Column('y.py', 'Y'),
    },
    (Row('a', (3.0, 90.0, 80.0)), Row('b', (4.0, 80.0, None))),
    (('a', 'b'),),
    'nothing.',
    seeds=2,
  )


def render(shares, losses=((1.0, 2.0), (3.0, 4.0))):
  """Returns the page of two rows, with the shares of X that seeds got right."""
  cells, counts, finished = {}, {}, {}
  for row, own, loss in zip('ab', shares, losses, strict=True):
    for i in range(2):
      model = grid.Run(f'{row}{i}', '', {}, pretraining('tiny'))
      tuned = grid.Run(f'{row}{i}X', '', {}, pretraining('tiny'), (model.name,))
      for column, run in (('', model), ('perplexity', model), ('X', tuned)):
        cells.setdefault((row, column), []).append(run)
      if i < len(own):
        finished[model.name] = {'metrics': {'mlm_loss': loss[i]}}
        counts[model.name] = make_counts([loss[i] / 100], 1000)[0]
        counts[tuned.name] = make_counts([own[i]])[0]
        finished[tuned.name] = {'problem': row == 'a' and i and 'no better'}
  finished['a0']['metrics']['plateau_exit_flops'] = 1
  text = claims.render(make_table(), cells, finished, counts, 'about')
  rows = re.findall(r'^\| (.*) \|$', text, re.MULTILINE)
  return text, {tuple(x.split(' | ')[:2]): x.split(' | ') for x in rows}


def test_figures_stand_beside_the_papers():
  text, rows = render([(0.7, 0.9), (0.5,)])
  assert 'Without data: Y.' in text and 'of 2 seeds each' in text
  assert rows['a', '2 x 128'][3:] == [
    *('1 of 2', '1.500 ± 0.707 (2)', '3.0 / 1.5 ± 0.7 (2)'),
    '90.0 / 80.0 ± 14.1 (2)*',
  ]
  assert rows['b', '2 x 128'][5:] == ['4.0 / 3.0 (1)', '80.0 / 50.0 (1)']
  assert rows['X', 'a > b'][-2:] == ['1', 'too few seeds']


def test_a_claim_is_shown_or_reversed_or_neither():
  _, rows = render([(0.9, 0.9), (0.2, 0.2)], ((1.0, 2.0), (31.0, 32.0)))
  assert rows['X', 'a > b'][2] == '+70.0'
  assert rows['X', 'a > b'][-2:] == ['2', 'shown']
  # Of the perplexity, less is better.
  assert rows['perplexity', 'a > b'][2] == '+30.0'
  assert rows['perplexity', 'a > b'][-1] == 'shown'
  _, rows = render([(0.2, 0.2), (0.9, 0.9)])
  assert rows['X', 'a > b'][-1] == 'REVERSED'
  _, rows = render([(0.5, 0.6), (0.6, 0.5)])
  assert rows['X', 'a > b'][-1] == 'not shown'


def make_run(task, needs=('seed=0',), **data):
  c = pretraining('tiny')
  c.task = task
  c.data.update(data)
  return grid.Run('x', '', {}, c, needs)


def test_what_a_run_got_right_is_read_from_what_it_leaves(tmp_path):
  folder = tmp_path / 'predictions'
  folder.mkdir()

  def read(run):
    counts = claims.read_counts(run, str(tmp_path))
    return counts.tolist(), float(claims.score(counts.sum(0)))

  (folder / 'dev.tsv').write_text(
    'id\tlabel\tprediction\n0\ta\ta\n1\tb\ta\n2\tb\tb\n3\tb\tb\n'
  )
  rows = [[1, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]
  assert read(make_run('classification')) == (rows, 75)
  numbers = make_run('classification')
  numbers.config.finetuning.regression = True
  (folder / 'dev.tsv').write_text(
    'id\tlabel\tprediction\n0\t1\t2.5\n1\t2\t2\n2\t4.5\t7\n'
  )
  correlation = 100 * np.corrcoef([1, 2, 4.5], [2.5, 2, 7])[0, 1]
  assert read(numbers)[1] == pytest.approx(correlation)
  (folder / 'dev.conll').write_text(
    'Ann B-PER B-PER\nran O B-LOC\n\nBob B-PER O\n'.replace(' ', '\t')
  )
  assert read(make_run('tagging')) == ([[1, 2, 1], [0, 0, 1]], 50)
  (folder / 'dev.conll').write_text('ran\tO\tO\n')
  assert read(make_run('tagging')) == ([[0, 0, 0]], 0)
  (folder / 'dev.predictions.json').write_text('{"1": "cat", "0": "cat"}')
  (tmp_path / 'dev.json').write_text(json.dumps(grid_test.SQUAD))
  files = ','.join(f'{x}={tmp_path}/dev.json' for x in ('train', 'dev'))
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


def test_errors_are_of_seeds_and_of_rows():
  ours = make_counts([0.6, 0.8, 0.7])
  assert claims.compare(ours, ours) == (0, 0, 0)
  # All seeds alike: what is left is the choice of rows, of which 40 differ.
  alike, better = make_counts([0.5] * 3), make_counts([0.6] * 3)
  difference, of_seeds, error = claims.compare(better, alike)
  assert (difference, of_seeds) == (pytest.approx(10), 0)
  assert error == pytest.approx(100 * (0.1 * 0.9 / 400) ** 0.5, rel=0.1)
  # One row: what is left are the seeds, paired.
  seeds = np.array([0.01, 0.02, 0.06]).reshape(3, 1, 1)
  ours = np.concatenate([seeds, *np.ones((2, 3, 1, 1))], -1)
  difference, error, of_rows = claims.compare(ours, ours * [[[0, 1, 1]]])
  assert (difference, of_rows) == (pytest.approx(3), 0)
  assert error == pytest.approx(np.std([1, 2, 6], ddof=1) / 3**0.5)
  pairs = claims.compare(make_counts([0.2, 0.9]), make_counts([0.1, 0.8]))
  assert max(pairs[1:]) < 3


def test_claims_about_nothing_are_seldom_shown(monkeypatch):
  monkeypatch.setattr(claims, '_RESAMPLES', 50)
  rng, seeds = np.random.default_rng(1), 3

  def draw(rows):
    """Returns counts of models that differ as much as their seeds do."""
    skill = rng.normal(0.4, 1, (seeds, 1)) + rng.normal(0, 1, rows)
    hits = skill + rng.normal(0, 1, (seeds, rows)) > 0
    return np.stack([hits, *np.ones((2, *hits.shape))], -1)

  def is_shown():
    difference, *errors = claims.compare(draw(60), draw(60))
    return difference > claims.find_margin(seeds, *errors, 0.975)

  assert np.mean([is_shown() for _ in range(300)]) < 0.05
