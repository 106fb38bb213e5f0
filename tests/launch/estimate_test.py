"""What is said about a run before it costs anything."""

import pytest

from bert_jax import errors
from launch import commands, estimate, supervisor, terminal
from tests.launch import routes_test

REPORT = {
  'run_estimate': {'hours': [31.5, 60.0], 'dollars': [126.0, 240.0]},
  'phases': [
    {'step_seconds_estimate': [0.1, 0.2]},
    {'step_seconds_estimate': [0.2, 0.6]},
  ],
}


def test_hours_price_and_lost_work_are_shown():
  made = routes_test.make('v5litepod-4', max_hours=72.0)  # $1 per chip and hour
  assert estimate.describe(made, REPORT, 5000) == [
    'preflight it fits; 31.5 to 60 hours, $126 to $240 (estimated)',
    'preempted at most 50.0 minutes of work are lost (checkpoint.every=5000), '
    'plus the wait for new hosts; $3.33',
  ]


def test_limit_below_the_estimate_is_a_warning():
  made = routes_test.make('v5litepod-4', max_usd=80.0, max_hours=72.0)
  assert made.hours == 20.0
  lines = estimate.describe(made, REPORT, 5000)
  assert any('limit of 20.00 hours is below' in line for line in lines)


def test_bill_stands_beside_the_estimate():
  made = routes_test.make('v5litepod-4')
  ledger = supervisor.Ledger('j', 0.0, 0.0, attempts=3, preemptions=2)
  ledger = supervisor.dataclasses.replace(
    ledger,
    seconds=45_000.0,
    reason='done',
    estimate=REPORT['run_estimate'],
  )
  assert terminal.list_bill(made, ledger) == [
    'ended     done',
    'requests  3, preemptions 2',
    'rent      12.50 hours, $50.00 (preflight: 31.5 to 60 hours, $126 to $240)',
  ]


def test_run_that_does_not_fit_is_refused(tmp_path):
  def run(argv, seconds=0):
    return commands.Result(2, 'memory DOES NOT FIT')

  made = routes_test.make('v5litepod-4')
  with pytest.raises(errors.UserError, match=r'DOES NOT FIT\n.*does not fit'):
    estimate.run_preflight(run, made, 'configs/tiny.py', str(tmp_path), 'key')


def test_the_same_question_is_asked_once(tmp_path):
  asked = []

  def run(argv, seconds=0):
    asked.append(argv)
    with open(argv[-1].partition('=')[2], 'w') as file:
      file.write('{"phases": []}')
    return commands.Result(0)

  made = routes_test.make('v5litepod-4')
  for key in ('one', 'one', 'two'):
    found = estimate.run_preflight(
      run, made, 'configs/tiny.py', str(tmp_path), key
    )
    assert found == {'phases': []}
  assert len(asked) == 2
