"""Tests of the scores, on cases in which formulas go wrong."""

import functools

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from bert_jax import errors
from bert_jax.finetuning import metrics

CLASSES = ('accuracy', 'f1', 'macro_f1', 'relation_f1', 'matthews')


def score(name, truth, predicted):
  return metrics.score([name], np.array(truth), np.array(predicted))[name]


@pytest.mark.parametrize(
  'name, truth, predicted, expected',
  [
    ('f1', [0, 0], [0, 0], 0),  # no positive at all
    ('matthews', [1, 1, 0], [1, 1, 1], 0),  # a constant
    ('matthews', [1, 1], [1, 1], 0),  # one class
    ('pearson', [1, 2, 3], [5, 5, 5], 0),  # a constant
    ('pearson', [1, 1, 1], [1, 2, 3], 0),
    ('pearson', [1], [2], 0),
    ('mean_squared_error', [1, 2], [1, 4], 2),
  ],
)
def test_scores_where_formulas_divide_by_0(name, truth, predicted, expected):
  assert score(name, truth, predicted) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize('right', [True, False])
def test_twenty_rows_are_never_certain(right):
  truth = np.arange(20) % 2
  predicted = truth if right else 1 - truth
  found = metrics.compare(CLASSES, truth, predicted, truth)['intervals']
  # Wilson's interval of 20 of 20 begins at 0.839.
  wide = 3.84146 / (20 + 3.84146)
  for name, interval in found.items():
    expected = (1 - wide, 1) if right else (0, wide)
    if name == 'matthews' and not right:
      expected = (-1, wide - 1)
    assert interval == pytest.approx(expected, abs=1e-5)


@pytest.mark.filterwarnings('ignore::UserWarning:sklearn')
@pytest.mark.parametrize('classes', [1, 2, 3, 4])
def test_scores_of_classes_are_those_of_scikit_learn(classes):
  random, m = np.random.default_rng(classes), sklearn.metrics
  for _ in range(10):
    truth, predicted = random.integers(0, classes, (2, 9))
    macro = {'average': 'macro', 'zero_division': 0}
    expected = {
      'accuracy': m.accuracy_score(truth, predicted),
      'f1': m.f1_score(truth, predicted, labels=[1], average='micro'),
      'macro_f1': m.f1_score(truth, predicted, **macro),
      'relation_f1': m.f1_score(
        truth, predicted, labels=[1, 2, 3], average='micro', zero_division=0
      ),
      'matthews': m.matthews_corrcoef(truth, predicted),
    }
    found = metrics.score(CLASSES, truth, predicted)
    assert found == pytest.approx(expected, abs=1e-12)


def test_scores_of_numbers_are_those_of_scipy():
  random, stats = np.random.default_rng(0), scipy.stats
  for _ in range(10):
    truth = random.integers(0, 6, 30).astype('f8')  # with ties
    predicted = truth + random.normal(size=30).round(1)
    found = metrics.score(['pearson', 'spearman', 'f1_at_3'], truth, predicted)
    expected = {
      'pearson': stats.pearsonr(truth, predicted).statistic,
      'spearman': stats.spearmanr(truth, predicted).statistic,
      'f1_at_3': sklearn.metrics.f1_score(truth >= 3, predicted >= 3),
    }
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
  'asked, labels, found',
  [
    ('macro_f1,accuracy', 'ab', ['macro_f1', 'accuracy']),
    ('pearson,f1_at_3', '', ['pearson', 'f1_at_3']),
    ('relation_f1', ['no_relation', 'x'], ['relation_f1']),
    ('relation_f1', 'ab', None),
    ('pearson', 'ab', None),
    ('accuracy', '', None),
    ('accuracy,', 'ab', None),
    ('mean_squared_error', '', None),  # of which less is better
  ],
)
def test_metrics_may_be_chosen(asked, labels, found):
  if found:
    assert metrics.check(asked, labels) == found
    return
  with pytest.raises(
    errors.UserError, match=f'metrics={asked} must be some of'
  ):
    metrics.check(asked, labels)


def compare(truth, predicted, train, names=('accuracy',)):
  truth, predicted, train = map(np.array, (truth, predicted, train))
  scored = metrics.compare(names, truth, predicted, train)
  return scored, metrics.find_problem(scored, predicted)


@pytest.mark.parametrize(
  'wrong, expected',
  [
    (3, None),
    (18, 'hardly better than a constant: accuracy 0.550, constant 0.500'),
    (21, 'no better than a constant: accuracy 0.475, constant 0.500'),
  ],
)
def test_predictions_no_better_than_a_constant_are_recognised(wrong, expected):
  truth = np.arange(40) % 2
  predicted = np.where(np.arange(40) < wrong, 1 - truth, truth)
  assert compare(truth, predicted, [0, 0, 1])[1] == expected


def test_predictions_that_are_all_the_same_or_not_finite_are_recognised():
  scored, problem = compare([0, 1, 1], [1, 1, 1], [0])
  assert problem == 'all 3 predictions are the same'
  problem = metrics.find_problem(scored, np.array([0.1, np.nan]))
  assert problem == 'some predictions are not finite'


def test_numbers_that_follow_the_truth_beat_their_mean():
  random = np.random.default_rng(0)
  truth, other = random.normal(size=(2, 40)).astype('f4')
  names = 'pearson', 'mean_squared_error'
  scored, problem = compare(truth, truth + other, truth, names)
  assert problem is None and scored['baseline']['pearson'] == 0
  assert scored['doubt'] == 0
  problem = compare(truth, other, truth, names)[1]
  assert 'better than a constant: pearson' in problem


def test_classes_are_scored_as_by_scikit_learn():
  truth, predicted = np.random.default_rng(0).integers(0, 4, (2, 50))
  predicted[predicted == 2] = 0  # never predicted
  found = metrics.describe_classes('abcd', truth, predicted)
  wanted = sklearn.metrics.precision_recall_fscore_support(
    truth, predicted, zero_division=0
  )
  matrix = sklearn.metrics.confusion_matrix(truth, predicted)
  for i, (name, row) in enumerate(found['classes'].items()):
    assert list(row.values()) == pytest.approx([x[i] for x in wanted])
    of = found['confusion'][name]
    assert [of.get(x, 0) for x in 'abcd'] == matrix[i].tolist()
    assert 0 not in of.values()


def test_the_baseline_is_the_better_constant_of_train_and_dev():
  for train in ([0, 0, 1], [1, 1, 0], [7, 7, 1]):
    scored, _ = compare([1, 1, 1, 0], [1, 0, 1, 0], train)
    assert scored['baseline'] == {'accuracy': 0.75}
  # F1 is of class 1, so the commoner class 0 gets nothing.
  scored, _ = compare([0, 0, 0, 1], [1, 0, 1, 0], [1, 1, 0], ['f1'])
  assert scored['baseline'] == {'f1': 0.4}
  numbers = metrics.predict_constant(np.array([1.0, 4.0], 'f4'), 3)
  assert numbers.tolist() == [2.5] * 3


def test_sets_are_scored_as_by_scikit_learn():
  truth, chosen = np.random.default_rng(0).integers(0, 2, (2, 40, 5))
  chosen[:, 3] = truth[:, 4] = 0  # never predicted; true of no row
  found = metrics.score_sums(
    metrics.count_sets(truth, chosen), metrics.divide_sets
  )
  f1 = functools.partial(sklearn.metrics.f1_score, truth, chosen)
  expected = {
    'micro_f1': f1(average='micro'),
    'macro_f1': f1(average='macro', zero_division=0),
    'subset_accuracy': sklearn.metrics.accuracy_score(truth, chosen),
  }
  assert found == pytest.approx(expected)
  compared = metrics.compare_sets('abcde', truth, chosen)
  assert compared['metrics'] == found
  each = f1(average=None, zero_division=0)
  assert [x['f1'] for x in compared['classes'].values()] == pytest.approx(each)


@pytest.mark.parametrize(
  'truth, likely, expected',
  [
    # F1 is 2 hits / (labels predicted + labels that are true).
    ([1, 0, 1, 0], [0.9, 0.6, 0.4, 0.1], 0.25),  # 4/5, not 2/3 above 0.75
    ([1, 0, 0, 1], [0.9, 0.6, 0.4, 0.1], 0.75),  # 2/3; also 2 2/6 of all
    ([1, 0], [0.5, 0.5], 0.25),  # not between two that are equal
    ([0, 0], [0.9, 0.1], 0.5),
    ([1, 0], [np.nan, 0.5], 0.5),
  ],
)
def test_a_threshold_has_the_best_micro_f1(truth, likely, expected):
  shaped = [np.array([x]) for x in (truth, likely)]
  assert metrics.choose_threshold(*shaped) == expected


def test_the_constant_of_sets_is_the_best_one():
  # Of 4 rows, 3 have label 0 and 1 has label 1: {0} has 2 3 / (4 + 4).
  truth = np.array([[1, 0], [1, 0], [1, 1], [0, 0]])
  found = metrics.compare_sets('ab', truth, truth)
  assert found['baseline'] == {
    'micro_f1': 0.75, 'macro_f1': (2 * 3 / 7) / 2, 'subset_accuracy': 0.5
  }  # fmt: skip
  assert found['metrics']['micro_f1'] == 1
  low, high = found['intervals']['micro_f1']
  assert low < 0.6 and high == 1


def test_wilsons_interval_is_that_of_statsmodels():
  # proportion_confint(8, 10, method='wilson'), and of 0 of 5.
  assert metrics.find_wilson(0.8, 10) == pytest.approx(
    [0.490162, 0.943318], 1e-5
  )
  assert metrics.find_wilson(0.0, 5) == pytest.approx([0, 0.434482], 1e-5)
  assert metrics.find_wilson(0.0, 0) == [0, 1]
