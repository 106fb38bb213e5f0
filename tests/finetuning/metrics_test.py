"""Tests of the scores, on cases in which formulas go wrong."""

import sys
import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from bert_jax import errors
from bert_jax.finetuning import metrics

CLASSES = ('accuracy', 'f1', 'macro_f1', 'matthews')


def score(name, truth, predicted):
  return metrics.score([name], np.array(truth), np.array(predicted))[name]


@pytest.mark.parametrize(
  'name, truth, predicted, expected',
  [
    ('accuracy', [0, 1, 2, 2], [0, 1, 1, 2], 0.75),
    # 2 true positives, 1 false positive, 1 false negative.
    ('f1', [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], 2 / 3),
    ('f1', [0, 0], [0, 0], 0),  # no positive at all
    ('f1', [1, 0], [1, 1], 2 / 3),
    # (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
    ('matthews', [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], 1 / 6),
    ('matthews', [1, 1, 0], [1, 1, 1], 0),  # a constant
    ('matthews', [1, 1], [1, 1], 0),  # one class
    ('macro_f1', [0, 0, 1], [0, 0, 0], 0.4),  # (0.8 + 0) / 2
    ('pearson', [1, 2, 3, 4], [2, 4, 6, 8], 1),
    ('pearson', [1, 2, 3], [5, 5, 5], 0),  # a constant
    ('pearson', [1, 1, 1], [1, 2, 3], 0),
    ('pearson', [1], [2], 0),
    ('spearman', [1, 2, 3, 4], [1, 8, 27, 64], 1),
    # Ranks 1.5 1.5 3 4 and 1 2 3 4.
    ('spearman', [1, 1, 3, 4], [1, 2, 3, 4], 4.5 / np.sqrt(4.5 * 5)),
    ('mean_squared_error', [1, 2], [1, 4], 2),
  ],
)
def test_scores_on_cases_computed_by_hand(name, truth, predicted, expected):
  assert score(name, truth, predicted) == pytest.approx(expected, abs=1e-12)


def test_an_interval_holds_the_score_and_is_wider_on_fewer_rows():
  random = np.random.default_rng(0)
  widths = []
  for size in (40, 400):
    truth = random.integers(0, 2, size)
    predicted = np.where(random.random(size) < 0.8, truth, 1 - truth)
    [name] = names = ['accuracy']
    low, high = metrics.find_intervals(names, truth, predicted)[name]
    assert low <= metrics.score(names, truth, predicted)[name] <= high
    widths.append(high - low)
  # 1.96 * 2 * sqrt(0.8 * 0.2 / size)
  assert widths == pytest.approx([0.248, 0.078], rel=0.25)


@pytest.mark.parametrize(
  'names, kind, size, most',
  [
    (('accuracy', 'macro_f1'), np.int32, 2000, 400),  # 400 classes
    (('mean_squared_error',), np.float32, 40_000, 40_000),
  ],
)
def test_intervals_do_not_hold_all_resamples_at_a_time(names, kind, size, most):
  truth = (np.arange(size) % most).astype(kind)
  tracemalloc.start()
  metrics.find_intervals(names, truth, truth[::-1])
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 150e6  # 1.3 GB and 320 MB for a thousand of them


@pytest.mark.filterwarnings('ignore:A single label:UserWarning:sklearn')
@pytest.mark.parametrize('classes', [1, 2, 3])
def test_the_formulas_of_intervals_give_what_the_library_gives(classes):
  random = np.random.default_rng(classes)
  truth = random.integers(0, classes, 9)
  predicted = random.integers(0, classes, 9)
  counts = metrics._sum_classes(*metrics._count_cells(truth, predicted))
  expected = metrics.score(CLASSES, truth, predicted)
  expected['matthews'] = matthews_corrcoef(truth, predicted)
  for name, value in expected.items():
    found = metrics._OF_COUNTS[name](*counts)
    assert found == pytest.approx(value, abs=1e-12), name
  assert metrics.score(CLASSES, truth, predicted) == pytest.approx(expected)


def test_as_many_classes_as_words_cost_no_more_than_their_rows():
  random = np.random.default_rng(0)
  truth = random.integers(0, 2**31 - 1, 300, np.int32)
  predicted = np.where(random.random(300) < 0.8, truth, 0).astype(np.int32)
  values = metrics.score(CLASSES, truth, predicted)
  found = metrics.find_intervals(CLASSES, truth, predicted)
  for name in ('accuracy', 'matthews'):
    low, high = found[name]
    assert low < values[name] < high < low + 0.12, name


def test_intervals_of_numbers_hold_the_score():
  random = np.random.default_rng(0)
  truth = random.normal(size=30).astype('f4')
  predicted = truth + random.normal(size=30).astype('f4') / 2
  [low, high] = metrics.find_intervals(['pearson'], truth, predicted)['pearson']
  value = metrics.score(['pearson'], truth, predicted)['pearson']
  assert 0.5 < low < value < high < 1


def test_the_baseline_is_the_commonest_class_or_the_mean():
  classes = metrics.predict_constant(np.array([2, 0, 2], 'i4'), 2)
  assert classes.tolist() == [2, 2]
  numbers = metrics.predict_constant(np.array([1.0, 4.0], 'f4'), 3)
  assert numbers.tolist() == [2.5] * 3


@pytest.mark.parametrize(
  'value, predicted, expected',
  [
    (0.9, [0, 1, 1], None),
    (0.6, [1, 1, 1], 'all 3 predictions are the same'),
    (
      0.5,
      [0, 1, 1],
      'no better than always predicting the same: accuracy 0.500, constant '
      '0.500',
    ),
    (0.9, [0.1, np.nan], 'some predictions are not finite'),
  ],
)
def test_predictions_no_better_than_a_constant_are_recognised(
  value, predicted, expected
):
  assert (
    metrics.find_problem(
      'accuracy', {'accuracy': value}, {'accuracy': 0.5}, np.array(predicted)
    )
    == expected
  )


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
  metrics.check_installed()
  monkeypatch.setitem(sys.modules, 'sklearn.metrics', None)
  with pytest.raises(errors.UserError, match="pip install 'bert_jax.finetune"):
    metrics.check_installed()
