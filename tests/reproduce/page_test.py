"""Tests of the page of a table."""

import re
import runpy

from bert_jax.config import pretraining
from bert_jax.reproduce import page, runs
from tests.reproduce import runs_test

_KNOWN = runpy.run_path(runs_test.PATH)
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
      model = runs.Run(f'{row}{i}', '', {}, pretraining('tiny'))
      tuned = runs.Run(f'{row}{i}X', '', {}, pretraining('tiny'), model.name)
      for column, run in (('', model), ('perplexity', model), ('X', tuned)):
        cells.setdefault((row, column), []).append(run)
      if i < len(own):
        finished[model.name] = {'metrics': {'mlm_loss': loss[i]}}
        counts[model.name] = runs_test.make_counts([loss[i] / 100], 1000)[0]
        counts[tuned.name] = runs_test.make_counts([own[i]])[0]
        finished[tuned.name] = {'problem': row == 'a' and i and 'no better'}
  finished['a0']['metrics']['plateau_exit_flops'] = 1
  text = page.render(make_table(), cells, finished, counts, 'about')
  rows = re.findall(r'^\| (.*) \|$', text, re.MULTILINE)
  return text, {tuple(x.split(' | ')[:2]): x.split(' | ') for x in rows}


def test_figures_stand_beside_the_papers():
  text, rows = render([(0.7, 0.9), (0.5,)])
  assert 'Without data: Y.' in text and 'of 2 seeds each' in text
  assert rows['a', '2 x 128'][3:] == [
    *('1 of 2', '1.500 ± 0.707 (2)', '3.0 / 1.5 ± 0.7 (2)'),
    '90.0 / 80.0 ± 14.1 (2)*',
  ]
  assert rows['b', '2 x 128'][5:] == [
    '4.0 / 3.0 (1)',
    '80.0 / 50.0 (1)',
  ]
  assert rows['X', 'a > b'][-2:] == ['1', 'too few seeds']


def test_a_claim_is_shown_or_reversed_or_neither():
  _, rows = render([(0.7, 0.9), (0.5, 0.6)])
  assert rows['X', 'a > b'][2] == '+25.0'
  assert rows['X', 'a > b'][-2:] == ['2', 'shown']
  # Of the perplexity, less is better.
  assert rows['perplexity', 'a > b'][2] == '+2.0'
  assert rows['perplexity', 'a > b'][-1] == 'shown'
  _, rows = render([(0.5, 0.6), (0.7, 0.9)])
  assert rows['X', 'a > b'][-1] == 'REVERSED'
  _, rows = render([(0.5, 0.6), (0.6, 0.5)])
  assert rows['X', 'a > b'][-1] == 'not shown'
