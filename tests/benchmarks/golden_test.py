"""What benchmarks/tpu/golden.py takes for a difference."""

import copy

import golden
import pytest

FACTS = {
  'versions': {'jax': '1.0', 'libtpu': '2.0'},
  'parameters': {'nsp/kernel': '[data, -], used as [-, -]'},
  'collectives': {'all-gather': '2 with 4,096 bytes'},
  'kernels': 4,
  'estimates': {'cycles': 1000, 'temporary_bytes': 200},
}


def changed(**sections):
  found = copy.deepcopy(FACTS)
  for name, values in sections.items():
    found[name] |= values
  return found


def test_equal_facts_do_not_differ():
  assert golden.differences(FACTS, FACTS) == ([], [])


def test_a_parameter_that_is_kept_otherwise_is_named():
  found = changed(parameters={'nsp/kernel': '[-, -], used as [-, -]'})
  [line], _ = golden.differences(FACTS, found)
  assert line == (
    'parameters.nsp/kernel was [data, -], used as [-, -], '
    'is [-, -], used as [-, -]'
  )


def test_what_is_written_is_read(monkeypatch, tmp_path):
  monkeypatch.setattr(golden, 'FOLDER', str(tmp_path))
  for name in ('base_128', 'base_512'):  # whose parameters are the same
    golden.write(name, FACTS)
  assert golden.read('base_128') == golden.read('base_512') == FACTS
  assert '"base_128"' in (tmp_path / 'base_512.json').read_text()


def test_new_and_missing_collectives_are_named():
  found = changed()
  found['collectives'] = {'all-reduce': '1 with 8 bytes'}
  assert golden.differences(FACTS, found)[0] == [
    'collectives.all-gather was 2 with 4,096 bytes, is absent',
    'collectives.all-reduce was absent, is 1 with 8 bytes',
  ]


@pytest.mark.parametrize(
  'cycles, wrong',
  [
    (1030, []),
    (970, []),
    (1031, ['estimates.cycles was 1,000, is 1,031 (+3.1%)']),
    (969, ['estimates.cycles was 1,000, is 969 (-3.1%)']),
  ],
)
def test_estimates_may_move_by_three_percent(cycles, wrong):
  found = changed(estimates={'cycles': cycles})
  assert golden.differences(FACTS, found) == (wrong, [])


def test_estimates_of_another_compiler_are_shown_and_not_judged():
  found = changed(versions={'libtpu': '2.1'}, estimates={'cycles': 2000})
  found['kernels'] = 5
  assert golden.differences(FACTS, found) == (
    ['kernels was 4, is 5'],
    [
      'versions.libtpu was 2.0, is 2.1',
      'estimates.cycles was 1,000, is 2,000 (+100.0%)',
    ],
  )
