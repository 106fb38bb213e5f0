"""Scores of predictions: scikit-learn's for classes, SciPy's for numbers.

Both are what GLUE's own evaluation used, and are kept well. What they leave
undefined is 0 here: the correlation of a constant, F1 without any positive.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax import errors

_RESAMPLES = 1000
_CELLS = 2**22  # of confusion matrices that are held at a time
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
  from sklearn import metrics

  return metrics.matthews_corrcoef(truth, predicted)


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
    found = _resample_classes(names, truth, predicted, random)
  else:
    scores = []
    for _ in range(_RESAMPLES):
      rows = random.integers(0, len(truth), len(truth))
      scores.append(score(names, truth[rows], predicted[rows]))
    found = {name: [x[name] for x in scores] for name in names}
  return {
    name: np.quantile(values, _TAILS).tolist() for name, values in found.items()
  }


def resample_means(values: np.ndarray) -> np.ndarray:
  """Returns 95 % bootstrap intervals of the means of values [N, M], [2, M]."""
  random, size = np.random.default_rng(0), len(values)
  means = [
    values[random.integers(0, size, size)].mean(0) for _ in range(_RESAMPLES)
  ]
  return np.quantile(means, _TAILS, axis=0)


def _resample_classes(names, truth, predicted, random):
  """Returns {metric: its value in every resample}.

  Which rows are drawn only matters for the confusion matrix, so that is drawn.
  From it, formulas give all values at once; scikit-learn takes 3 ms for each.
  """
  classes = int(max(truth.max(), predicted.max(), 1)) + 1
  cells = np.bincount(truth * classes + predicted, minlength=classes**2)
  found: dict[str, list[float]] = {name: [] for name in names}
  most = max(1, _CELLS // len(cells))
  for begin in range(0, _RESAMPLES, most):
    count = min(most, _RESAMPLES - begin)
    drawn = random.multinomial(len(truth), cells / len(truth), count)
    matrices = drawn.reshape(-1, classes, classes)  # [R, truth, predicted]
    for name in names:
      found[name] += _OF_CONFUSION[name](matrices).tolist()
  return found


def _f1_of_classes(m):
  """Returns F1 of each class, [R, C]; NaN for a class that is not there."""
  hits = np.diagonal(m, axis1=1, axis2=2)
  with np.errstate(invalid='ignore'):
    return 2 * hits / (m.sum(1) + m.sum(2))


def _matthews_of_confusion(m):
  m = m.astype(np.float64)
  there, given, total = m.sum(2), m.sum(1), m.sum((1, 2))
  hits = np.trace(m, axis1=1, axis2=2)
  top = hits * total - (there * given).sum(1)
  squares = [total**2 - (x**2).sum(1) for x in (there, given)]
  root = np.sqrt(squares[0] * squares[1])
  return np.divide(top, root, out=np.zeros_like(top), where=root > 0)


_OF_CONFUSION: dict[str, Callable[[np.ndarray], np.ndarray]] = {
  'accuracy': lambda m: np.trace(m, axis1=1, axis2=2) / m.sum((1, 2)),
  'f1': lambda m: np.nan_to_num(_f1_of_classes(m)[:, 1]),
  'macro_f1': lambda m: np.nanmean(_f1_of_classes(m), axis=1),
  'matthews': _matthews_of_confusion,
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
  """Says why a run learnt nothing; None if it did.

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
      f'{name} {scores[name]:.3f} is not above that of a constant, '
      f'{baseline[name]:.3f}'
    )
  return None
