"""Scores of predictions: scikit-learn's for classes, SciPy's for numbers.

Both are what GLUE's own evaluation used, and are well maintained. What they
leave undefined is 0 here: the correlation of a constant, F1 without any
positive. Matthews' correlation is our own: scikit-learn fills a matrix of all
pairs of classes for it, gigabytes with tens of thousands of them.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax import errors

_RESAMPLES = 1000
_TAILS = 0.025, 0.975  # of an interval of 95 %


def check_installed():
  """Raises errors.UserError unless scikit-learn and SciPy are installed."""
  try:
    import scipy.stats  # noqa: F401
    import sklearn.metrics  # noqa: F401
  except ImportError as error:
    raise errors.UserError(
      f'fine-tuning is scored with scikit-learn and SciPy ({error}); install '
      "them with: pip install 'bert_jax[finetune]'"
    ) from error


def _accuracy(truth, predicted):
  from sklearn import metrics

  return metrics.accuracy_score(truth, predicted)


def _f1(truth, predicted):
  """Returns F1 of class 1, as GLUE defines it for MRPC and QQP."""
  from sklearn import metrics

  return metrics.f1_score(truth, predicted, labels=[1], average='micro')


def _macro_f1(truth, predicted):
  from sklearn import metrics

  return metrics.f1_score(truth, predicted, average='macro', zero_division=0)


def _matthews(truth, predicted):
  *cells, rows = _count_cells(truth, predicted)
  return _matthews_of_counts(*_sum_classes(*cells, rows))


def _pearson(truth, predicted):
  from scipy import stats

  return _correlate(stats.pearsonr, truth, predicted)


def _spearman(truth, predicted):
  from scipy import stats

  return _correlate(stats.spearmanr, truth, predicted)


def _correlate(function, truth, predicted):
  if len(truth) < 2 or np.ptp(truth) == 0 or np.ptp(predicted) == 0:
    return 0.0
  return function(truth, predicted).statistic


def _mean_squared_error(truth, predicted):
  return np.mean(np.square(np.subtract(truth, predicted, dtype=np.float64)))


METRICS: dict[str, Callable[[Any, Any], float]] = {
  'accuracy': _accuracy,
  'f1': _f1,
  'macro_f1': _macro_f1,
  'matthews': _matthews,
  'pearson': _pearson,
  'spearman': _spearman,
  'mean_squared_error': _mean_squared_error,
}


def score(
  names: Sequence[str], truth: np.ndarray, predicted: np.ndarray
) -> dict[str, float]:
  """Returns {metric: value}.

  Args:
    names: of `METRICS`.
    truth: classes or numbers, [N].
    predicted: the same of the model, [N].
  """
  with warnings.catch_warnings():
    # Resamples may lack a class, or nearly be constant.
    warnings.simplefilter('ignore')
    return {name: float(METRICS[name](truth, predicted)) for name in names}


def find_intervals(
  names: Sequence[str], truth: np.ndarray, predicted: np.ndarray
) -> dict[str, list[float]]:
  """Returns {metric: [low, high]}, 95 % bootstrap intervals by percentiles.

  Rows are drawn anew with replacement, always with the same seed. It covers the
  choice of the dev rows, not that of the training run: other seeds differ by
  more on small data.
  """
  random = np.random.default_rng(0)
  if np.issubdtype(truth.dtype, np.integer):
    scores = _resample_classes(names, truth, predicted, random)
  else:
    scores = []
    for _ in range(_RESAMPLES):
      rows = random.integers(0, len(truth), len(truth))
      scores.append(score(names, truth[rows], predicted[rows]))
  return {name: find_interval([x[name] for x in scores]) for name in names}


def find_interval(values: Sequence[float]) -> list[float]:
  """Returns the 95 % interval of a score's values in resamples, [low, high]."""
  return np.quantile(values, _TAILS).tolist()


def draw_sums(values: np.ndarray) -> np.ndarray:
  """Returns the sums of values [N, M] in resamples of the N rows, [R, M]."""
  random, size = np.random.default_rng(0), len(values)
  return np.array(
    [values[random.integers(0, size, size)].sum(0) for _ in range(_RESAMPLES)]
  )


def _resample_classes(names, truth, predicted, random) -> list[dict]:
  """Returns {metric: value} of every resample.

  Which rows are drawn only matters for the confusion matrix, so how many fall
  into each of its cells is drawn, and only into those with rows: at most N of
  N rows, however many classes there are. Formulas give the values from these
  counts; scikit-learn takes 3 ms for each.
  """
  *cells, rows = _count_cells(truth, predicted)
  found = []
  for _ in range(_RESAMPLES):
    drawn = random.multinomial(len(truth), rows / len(truth))
    counts = _sum_classes(*cells, drawn)
    found.append({name: _OF_COUNTS[name](*counts) for name in names})
  return found


def _count_cells(truth, predicted):
  """Returns the cells of a confusion matrix that have rows.

  Returns:
    The true and the predicted class of each cell, [K], as ranks among the
    classes that occur and 0 and 1, which keep their numbers; its rows, [K].
  """
  known = np.union1d(np.union1d(truth, predicted), [0, 1])
  truth, predicted = (np.searchsorted(known, x) for x in (truth, predicted))
  cells, rows = np.unique(truth * len(known) + predicted, return_counts=True)
  return *divmod(cells, len(known)), rows


def _sum_classes(truth, predicted, rows):
  """Returns the rows of each class, those predicted to be it, and the hits.

  Args: as `_count_cells` returns.
  """
  size = max(truth.max(), predicted.max(), 1) + 1
  hit = truth == predicted
  return (
    np.bincount(truth, rows, size),
    np.bincount(predicted, rows, size),
    np.bincount(truth[hit], rows[hit], size),
  )


def _f1_of_counts(there, given, hits):
  """Returns F1 of each class that is there or predicted."""
  both = there + given
  return 2 * hits[both > 0] / both[both > 0]


def _matthews_of_counts(there, given, hits):
  total = there.sum()
  top = hits.sum() * total - there @ given
  root = np.sqrt((total**2 - there @ there) * (total**2 - given @ given))
  return top / root if root > 0 else 0.0


_OF_COUNTS: dict[str, Callable[..., float]] = {
  'accuracy': lambda there, given, hits: hits.sum() / there.sum(),
  'f1': lambda there, given, hits: 2 * hits[1] / max(there[1] + given[1], 1),
  'macro_f1': lambda *counts: _f1_of_counts(*counts).mean(),
  'matthews': _matthews_of_counts,
}


def predict_constant(train: np.ndarray, size: int) -> np.ndarray:
  """Returns the baseline's predictions: the commonest class, or the mean.

  Args:
    train: classes (integers) or numbers of the training rows.
    size: number of predictions.
  """
  if np.issubdtype(train.dtype, np.integer):
    return np.full(size, np.bincount(train).argmax(), train.dtype)
  return np.full(size, train.mean(), train.dtype)


def find_problem(
  name: str,
  scores: dict[str, float],
  baseline: dict[str, float],
  predicted: np.ndarray,
) -> str | None:
  """Says what is wrong with predictions; None if they beat the constant.

  Args:
    name: the metric to compare by; more is better.
    scores: those of the model.
    baseline: those of the constant baseline.
    predicted: the model's classes or numbers, [N].
  """
  if not np.isfinite(predicted).all():
    return 'some predictions are not finite'
  if len(predicted) > 1 and np.ptp(predicted) < 1e-6:
    return f'all {len(predicted):,} predictions are the same'
  if scores[name] <= baseline[name]:
    return (
      'no better than always predicting the same: '
      f'{name} {scores[name]:.3f}, constant {baseline[name]:.3f}'
    )
  return None
