"""Tests of the table of a sweep."""

from bert_jax.sweep import states, table
from tests.sweep import summary_test

WAITING = states.State(None, 0, 0, None, {})


def test_the_table_has_a_line_for_each_setting():
  runs = summary_test.make_runs()
  values = [0.5, 1.0, None, None, None, None]
  found = {
    run.name: WAITING
    if x is None
    else WAITING._replace(
      results=summary_test.make_results(x, 'poor' if x == 0.5 else None)
    )
    for run, x in zip(runs, values, strict=True)
  }
  found[runs[2].name] = states.State(None, 30, 120, 0.61234, {})
  found[runs[3].name] = states.State(None, 60, 120, 0.5, {'f1': 0.875})
  assert table.render(runs, found, {runs[4].name: 1}) == [
    'learning_rate  done  f1               best',
    '1e-05          2/3   0.7500 ± 0.3536  1.0000  seed=2 25% loss 0.612, '
    '1 may have learnt nothing',
    '2e-05          0/3                            '
    'seed=0 50% f1 0.8750, seed=1 failed',
  ]
