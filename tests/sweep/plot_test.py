"""Tests of the picture of a sweep."""

import sys

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.sweep import plot
from tests.sweep import summary_test


def draw(values, grid):
  runs = summary_test.make_runs(grid)
  found = summary_test.summarise(values, runs)
  [axis] = plot._make_figure(found).axes
  return axis


def get_points(axis):
  return [
    np.array(line.get_xydata())
    for line in axis.lines
    if line.get_marker() == 'o'
  ]


def test_learning_rates_stand_at_their_logarithms_with_their_own_names():
  pytest.importorskip('matplotlib')
  rates = ['0.0001', '0.001', '0.01']
  axis = draw([0.5] * 9, f'learning_rate={",".join(rates)} seed=0,1,2')
  assert [x.get_text() for x in axis.get_xticklabels()] == rates
  assert axis.get_xticks().tolist() == [-4, -3, -2]
  for place, points in zip((-4, -3, -2), get_points(axis), strict=True):
    assert points[:, 0].mean() == pytest.approx(place)
    assert np.ptp(points[:, 0]) < 0.3  # no run is nearer to another rate
  texts = [x.get_text() for x in axis.figure.legends[0].get_texts()]
  assert texts[-1] == 'between means'


def test_each_setting_has_a_strip_with_all_its_runs():
  pytest.importorskip('matplotlib')
  axis = draw([0.5, 0.75, 0.25, 1], 'init_from=a,b seed=0,1')
  first, second = get_points(axis)
  assert first[:, 1].tolist() == [0.5, 0.75]
  assert second[:, 1].tolist() == [0.25, 1]
  assert abs(first[:, 0]).max() < 0.3 < second[:, 0].min()
  assert [x.get_text() for x in axis.get_xticklabels()] == [
    'init_from=a',
    'init_from=b',
  ]
  assert axis.get_ylabel() == 'f1 on dev'
  assert axis.get_title() == 'mrpc, from runs/base, 408 rows of dev'
  [legend] = axis.figure.legends
  texts = [x.get_text() for x in legend.get_texts()]
  assert texts == ['run', 'mean of runs', 'constant prediction']


def test_the_steps_of_a_run_are_an_axis_with_a_line_of_means():
  pytest.importorskip('matplotlib')
  axis = draw([0.5, 0.75, None], 'init_from=r@100,r@1000,r@3000')
  [line] = [x for x in axis.lines if x.get_linestyle() == ':']
  assert line.get_xydata().tolist() == [[2, 0.5], [3, 0.75]]
  assert axis.get_xlabel() == 'steps of r'


def test_one_field_with_numbers_is_an_axis():
  def find(*settings):
    return plot.find_axis(list(settings))

  assert find({'a': '1e-5'}, {'a': '2e-5'}) == ('a', [1e-5, 2e-5])
  assert find({'a': '1'}) is None
  assert find({'a': '1'}, {'a': 'x'}) is None
  assert find({'a': '0'}, {'a': '1'}) is None  # a logarithm has no place for 0
  assert find({'a': '1', 'b': '1'}, {'a': '2', 'b': '1'}) is None
  assert find({'a': 'r@1'}, {'a': 's@2'}) is None


def test_a_picture_is_written(tmp_path):
  pytest.importorskip('matplotlib')
  plot.draw(str(tmp_path / 'a.png'), summary_test.summarise([1, 0, 0, 1, 1, 1]))
  assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')


def test_without_matplotlib_there_is_one_line(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  with pytest.raises(errors.UserError, match=r'no picture .*bert_jax\[plot\]'):
    plot.draw(str(tmp_path / 'a.png'), summary_test.summarise([1] * 6))
