"""Scores of predictions, their intervals, and whether they beat a constant.

The values are scikit-learn's and SciPy's, with which GLUE's own script scores;
tests compare them. What these leave undefined is 0: the correlation of a
constant, F1 without any positive.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import errors

OF_SETS = 'micro_f1', 'macro_f1', 'subset_accuracy'  # of sets of labels
_RESAMPLES = 1000
_TAILS = 0.025, 0.975  # of an interval of 95 %
_Z = 1.959964  # standard deviations on either side of it
# Metrics that are no share of anything, for which Wilson has no interval.
_NO_SHARES = 'pearson', 'spearman', 'mean_squared_error'
# Share of resamples in which a constant may do as well: in simulations, 3 % of
# random predictions pass, and 1 % of those that are right in 80 % of 60 rows do not.
_DOUBT = 0.15


def _correlate(truth, predicted):
  if len(truth) < 2 or np.ptp(truth) == 0 or np.ptp(predicted) == 0:
    return 0.0
  x, y = (
    np.subtract(a, a.mean(dtype='f8'), dtype='f8') for a in (truth, predicted)
  )
  return (x @ y) / np.sqrt((x @ x) * (y @ y))


def _rank(values):
  """Returns the ranks of values; equal ones share their mean rank."""
  _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
  return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _average_f1(there, given, hits):
  both = there + given
  return (2 * hits[both > 0] / both[both > 0]).mean()


def _f1_of(there, given, hits, classes=slice(1, 2)):
  there, given, hits = (x[classes].sum() for x in (there, given, hits))
  return 2 * hits / max(there + given, 1)


def _matthews(there, given, hits):
  total = float(there.sum())  # whose fourth power is too large for an integer
  top = hits.sum() * total - there @ given
  root = np.sqrt((total**2 - there @ there) * (total**2 - given @ given))
  return top / root if root > 0 else 0.0


_OF_NUMBERS: dict[str, Callable[[Any, Any], float]] = {
  'pearson': _correlate,
  'spearman': lambda *pair: _correlate(*map(_rank, pair)),
  'mean_squared_error': lambda truth, predicted: np.mean(
    np.square(np.subtract(truth, predicted, dtype='f8'))
  ),
  'f1_at_3': lambda *pair: _f1_of(*_count(*(1 * (x >= 3) for x in pair))),
}
# From the rows, predictions and hits of each class. `f1` is class 1's, as GLUE has
# it for MRPC and QQP; `relation_f1` is of all but no_relation in KLUE-RE.
_OF_COUNTS: dict[str, Callable[..., float]] = {
  'accuracy': lambda there, given, hits: hits.sum() / there.sum(),
  'f1': _f1_of,
  'macro_f1': _average_f1,
  'relation_f1': lambda *counts: _f1_of(*counts, slice(1, None)),
  'matthews': _matthews,
}


def check(asked: str, labels: Sequence[str]) -> list[str]:
  """Returns the names in `finetuning.metrics`, checked."""
  names, known = asked.split(','), [*(_OF_COUNTS if labels else _OF_NUMBERS)]
  if labels and labels[0] != 'no_relation':
    known.remove('relation_f1')
  if names[0] == 'mean_squared_error' or set(names) - set(known):
    raise errors.UserError(
      f'finetuning.metrics={asked} must be some of {", ".join(known)}, and more of '
      'the first one better.'
    )
  return names


def score(
  names: Sequence[str], truth: np.ndarray, predicted: np.ndarray
) -> dict[str, float]:
  """Returns {metric: value} of predictions, [N], of classes or of numbers."""
  functions, pair = _OF_NUMBERS, (truth, predicted)
  if names[0] in _OF_COUNTS:
    functions, pair = _OF_COUNTS, _count(truth, predicted)
  return {name: float(functions[name](*pair)) for name in names}


def _count(truth, predicted, size=2):
  size = max(truth.max() + 1, predicted.max() + 1, size)
  hits = truth[truth == predicted]
  return [np.bincount(x, minlength=size) for x in (truth, predicted, hits)]


def compare(
  names: Sequence[str],
  truth: np.ndarray,
  predicted: np.ndarray,
  train: np.ndarray,
  other: np.ndarray | None = None,
) -> dict[str, Any]:
  """Scores predictions, compared with a constant, or with `other` predictions.

  The constant is the commonest class of the training rows or of these,
  whichever scores better, or the mean of the training rows. Rows are drawn anew
  with replacement, always with the same seed.

  Returns:
    `metrics` and `baseline` (of the constant), {metric: value}; `intervals`,
    {metric: [low, high]}; `doubt`, the share of resamples in which the constant
    does as well as the model, by the first metric.
  """
  constants = [predict_constant(x, len(truth)) for x in (train, truth)]
  constants = constants if other is None else [other]
  constant = max(constants, key=lambda x: score(names[:1], truth, x)[names[0]])
  return _compare(
    len(truth),
    lambda rows: score(names, truth[rows], predicted[rows]),
    lambda rows: score(names, truth[rows], constant[rows]),
  )


def score_sums(
  values: np.ndarray, divide: Callable[[np.ndarray], dict[str, Any]]
) -> dict[str, float]:
  """Returns {metric: value} of values [N, M] of N units, as `compare_sums`."""
  return {name: float(x) for name, x in divide(values.sum(0)).items()}


def compare_sums(
  values: np.ndarray,
  constant: np.ndarray,
  divide: Callable[[np.ndarray], dict[str, Any]],
) -> dict[str, Any]:
  """Compares values [N, M] of N units, such as counts of entities, as `compare`.

  Args:
    constant: a constant's values, [N, M], or [1, M] if they are all the same.
    divide: (sums of values [M]) -> {metric: value}; the first decides.
  """

  def score_rows(x, rows):
    # Faster than x[rows].sum(0), and in one thread.
    counts = np.bincount(rows, minlength=len(x))
    return score_sums(np.einsum('n,nm->m', counts, x)[None], divide)

  constant = np.broadcast_to(constant, values.shape)
  scores = (functools.partial(score_rows, x) for x in (values, constant))
  return _compare(len(values), *scores)


def _compare(size, score_rows, score_constant) -> dict[str, Any]:
  """Returns the result of `compare`, given functions from rows to scores."""
  every = np.arange(size)
  values, baseline = score_rows(every), score_constant(every)
  first = next(iter(values))
  drawn = [score_rows(x) for x in _draw(size)]
  others = [score_constant(x)[first] for x in _draw(size)]
  doubt = np.mean(np.less_equal([x[first] for x in drawn], others))
  return {
    'metrics': values,
    'intervals': {
      name: _find_interval(name, x, [y[name] for y in drawn], size)
      for name, x in values.items()
    },
    'baseline': baseline,
    'doubt': float(doubt),
  }


def describe_classes(
  labels: Sequence[str], truth: np.ndarray, predicted: np.ndarray
) -> dict[str, dict]:
  """Returns `classes`, {class: its precision, recall, F1 and rows}.

  And `confusion`, {true class: {predicted class: rows}}, without empty pairs.
  """
  cells, rows = np.unique([truth, predicted], axis=1, return_counts=True)
  confusion: dict[str, dict[str, int]] = {}
  for (true, given), count in zip(cells.T, rows.tolist(), strict=True):
    confusion.setdefault(labels[true], {})[labels[given]] = count
  counts = _count(truth, predicted, len(labels))
  return {'classes': _describe_each(labels, *counts), 'confusion': confusion}


def _describe_each(labels, there, given, hits) -> dict[str, dict]:
  shares = {
    'precision': hits / np.maximum(given, 1),
    'recall': hits / np.maximum(there, 1),
    'f1': 2 * hits / np.maximum(there + given, 1),
    'rows': there,
  }
  return {
    label: {name: x[i].item() for name, x in shares.items()}
    for i, label in enumerate(labels)
  }


def compare_sets(
  labels: Sequence[str], truth: np.ndarray, chosen: np.ndarray
) -> dict[str, Any]:
  """Scores sets of labels, 0 or 1 [N, C], and each label alone in `classes`.

  The constant is the set with the best micro F1 for all of these rows.
  """
  shares = np.broadcast_to(truth.mean(0), truth.shape)
  constant = shares > choose_threshold(truth, shares)
  counts, theirs = (count_sets(truth, x) for x in (chosen, constant))
  each = _describe_each(labels, *np.split(counts[:, :-2].sum(0), 3))
  return compare_sums(counts, theirs, divide_sets) | {'classes': each}


def count_sets(truth: np.ndarray, chosen: np.ndarray) -> np.ndarray:
  """Returns what the scores of rows are sums of, int [N, 3 C + 2]."""
  equal = (truth == chosen).all(1, keepdims=True)
  columns = truth, chosen, truth * chosen, equal, np.ones_like(equal)
  return np.hstack(columns).astype(int)


def divide_sets(sums: np.ndarray) -> dict[str, Any]:
  there, given, hits = np.split(sums[:-2], 3)  # [C]
  both = there + given
  scores = (
    2 * hits.sum() / max(both.sum(), 1),
    (2 * hits / np.maximum(both, 1)).mean(),
    sums[-2] / sums[-1],
  )
  return dict(zip(OF_SETS, scores, strict=True))


def choose_threshold(truth: np.ndarray, likely: np.ndarray) -> float:
  """Returns the probability above which labels have the best micro F1.

  It is half-way between two of `likely`; 0.5 if no row has a label.

  >>> likely = np.array([[0.9, 0.2], [0.4, 0.1]])
  >>> round(choose_threshold(np.array([[1, 0], [1, 0]]), likely), 3)
  0.3
  """
  likely = np.nan_to_num(likely).ravel()
  order = np.argsort(-likely, kind='stable')
  ranked = np.append(likely[order], 0)
  hits = truth.ravel()[order].cumsum()
  f1 = 2 * hits / (np.arange(1, len(ranked)) + hits[-1])
  f1[ranked[1:] == ranked[:-1]] = 0  # no threshold is between equal ones
  best = f1.argmax()
  return float(ranked[best : best + 2].mean()) if f1[best] else 0.5


def _find_interval(name, value, drawn, rows) -> list[float]:
  """Returns the 95 % interval of a metric's value, [low, high].

  It is the bootstrap's over the rows, but, of a share, at least as wide as
  Wilson's: the bootstrap alone would be sure of a score of 1 or 0.
  """
  low, high = np.quantile(drawn, _TAILS).tolist()
  if name in _NO_SHARES:
    return [low, high]
  bounds = find_wilson(abs(value), rows)
  least, most = sorted(float(np.copysign(x, value)) for x in bounds)
  return [min(low, least), max(high, most)]


def find_wilson(share: float, trials: float) -> list[float]:
  """Returns Wilson's 95 % interval of a share, [low, high].

  >>> [round(x, 3) for x in find_wilson(1.0, 20)]
  [0.839, 1.0]
  """
  if not trials:
    return [0.0, 1.0]
  more = _Z**2 / trials
  centre = (share + more / 2) / (1 + more)
  half = np.sqrt(more * share * (1 - share) + more**2 / 4) / (1 + more)
  return [max(0.0, float(centre - half)), min(1.0, float(centre + half))]


def _draw(size: int) -> Iterator[np.ndarray]:
  """Yields the rows of each resample, always the same ones."""
  random = np.random.default_rng(0)
  return (random.integers(0, size, size) for _ in range(_RESAMPLES))


def predict_constant(labels: np.ndarray, size: int) -> np.ndarray:
  """Returns the commonest class of some rows, or their mean, `size` times."""
  if np.issubdtype(labels.dtype, np.integer):
    classes, counts = np.unique(labels, return_counts=True)
    return np.full(size, classes[counts.argmax()], labels.dtype)
  return np.full(size, labels.mean(), labels.dtype)


def find_problem(scored: dict[str, Any], predicted: np.ndarray) -> str | None:
  """Says what is wrong with predictions, [N], scored by `compare`, if anything."""
  if not np.isfinite(predicted).all():
    return 'some predictions are not finite'
  if len(predicted) > 1 and np.ptp(predicted) < 1e-6:
    return f'all {len(predicted):,} predictions are the same'
  return describe_doubt(scored, 'a constant')


def describe_doubt(scored: dict[str, Any], what: str) -> str | None:
  """Says that predictions scored by `compare` hardly beat others, if they do."""
  if scored['doubt'] <= _DOUBT:
    return None
  [(name, value), *_] = scored['metrics'].items()
  other = scored['baseline'][name]
  return (
    f'{"hardly" if value > other else "no"} better than {what}: {name} '
    f'{value:.3f}, {what.removeprefix("a ")} {other:.3f}'
  )
