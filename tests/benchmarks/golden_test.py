"""What benchmarks/tpu/golden.py takes for a difference."""

import copy

import golden
import pytest

FACTS = {
  'versions': {'jax': '1.0', 'libtpu': '2.0'},
  'parameters': {'nsp/kernel': '[data, -], used as [-, -]'},
  'collectives': {'all-gather': '2 with 4,096 bytes'},
  'kernels': {'a': 4},
  'estimates': {'cycles': 1000, 'temporary_bytes': 200},
}


def changed(**sections):
  found = copy.deepcopy(FACTS)
  for name, values in sections.items():
    found[name] |= values
  return found


def test_what_is_written_is_read(monkeypatch, tmp_path):
  monkeypatch.setattr(golden, 'FOLDER', str(tmp_path))
  for name in ('base_128', 'base_512'):  # whose parameters are the same
    golden.write(name, FACTS)
  assert golden.read('base_128') == golden.read('base_512') == FACTS
  assert '"base_128"' in (tmp_path / 'base_512.json').read_text()


def test_new_missing_and_changed_facts_are_named():
  found = changed(parameters={'nsp/kernel': '[-, -], used as [-, -]'})
  found['collectives'] = {'all-reduce': '1 with 8 bytes'}
  assert golden.differences(FACTS, FACTS) == []
  assert golden.differences(FACTS, found) == [
    'parameters.nsp/kernel was [data, -], used as [-, -], '
    'is [-, -], used as [-, -]',
    'collectives.all-gather was 2 with 4,096 bytes, is None',
    'collectives.all-reduce was None, is 1 with 8 bytes',
  ]


@pytest.mark.parametrize('cycles', [1030, 970, 1031, 969])
def test_estimates_may_move_by_three_percent(cycles):
  found = changed(estimates={'cycles': cycles})
  wrong = [] if abs(cycles - 1000) <= 30 else [f'was 1000, is {cycles}']
  lines = golden.differences(FACTS, found)
  assert [x.removeprefix('estimates.cycles ') for x in lines] == wrong
  found |= {'versions': {'jax': '1.0', 'libtpu': '2.1'}}
  assert golden.differences(FACTS, found) == []
