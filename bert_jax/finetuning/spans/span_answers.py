"""Chooses the answers to questions among the likeliest spans of their windows."""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.finetuning import metrics
from bert_jax.finetuning.spans import span_data, span_metrics
from bert_jax.model import classifier

MOST = 20  # likeliest answers of a question that are listed


class Candidates(NamedTuple):
  """The likeliest answers to a question.

  Attributes:
    texts: parts of its passage, each once, the likeliest first; [] if nothing in
      the passage can be an answer.
    scores: logits of the first and of the last token of each, float64 [N, 2].
    null: those of [CLS] in the window where their sum is smallest, [2].
  """

  texts: list[str]
  scores: np.ndarray
  null: np.ndarray

  @property
  def odds(self) -> float:
    """Returns by how much no answer scores higher than the best one."""
    if not self.texts:
      return float(np.finfo(np.float32).max)
    return float(self.null.sum() - self.scores[0].sum())


def list_candidates(
  split: span_data.Split, ranked: dict[str, np.ndarray]
) -> list[Candidates]:
  """Returns those of every question of a split.

  Args:
    split: the questions.
    ranked: `answering.rank` of all their rows.
  """
  made = split.windows
  bounds = np.searchsorted(made.questions, np.arange(len(split.ids) + 1))
  # To tokens of the passage.
  shift = (made.tokens - made.encoded.firsts)[:, None]
  firsts, lasts = ranked['firsts'] + shift, ranked['lasts'] + shift
  found = []
  for question, passage in enumerate(split.passage_of):
    rows = slice(bounds[question], bounds[question + 1])
    scores = ranked['scores'][rows].reshape(-1, 2).astype(np.float64)
    order = np.argsort(-scores.sum(-1), kind='stable')
    order = order[np.isfinite(scores[order].sum(-1))]
    located, text = split.located[passage], split.passages[passage]
    kept: dict[str, int] = {}
    for i in order:
      first, last = firsts[rows].flat[i], lasts[rows].flat[i]
      kept.setdefault(text[located.begins[first] : located.ends[last]], i)
      if len(kept) == MOST:
        break
    nulls = ranked['nulls'][rows].astype(np.float64)
    found.append(
      Candidates(
        list(kept), scores[list(kept.values())], nulls[nulls.sum(-1).argmin()]
      )
    )
  return found


class Answers(NamedTuple):
  """The answers to the questions of a split.

  Attributes:
    candidates: of each question.
    texts: the chosen answers; '' is none.
    threshold: of the odds, above which a question has no answer; None if every
      question has one.
    scores: exact match and F1 of each question, [Q, 2]; None if the right
      answers are not known.
  """

  candidates: list[Candidates]
  texts: list[str]
  threshold: float | None
  scores: np.ndarray | None


def choose(
  split: span_data.Split,
  ranked: dict[str, np.ndarray],
  settings: classifier.Spans,
  tune: bool = False,
) -> Answers:
  """Chooses an answer to each question.

  Args:
    split: the questions.
    ranked: `answering.rank` of all their rows.
    settings: how answers are found.
    tune: whether to choose the threshold by which the F1 is best, if there is
      one; otherwise it is that of the settings.
  """
  candidates = list_candidates(split, ranked)
  threshold, right = settings.threshold, split.answers
  if threshold is not None and tune:
    best = [x.texts[0] if x.texts else '' for x in candidates]
    threshold = span_metrics.find_threshold(
      np.array([x.odds for x in candidates]),
      span_metrics.score(best, right)[:, 1],
      np.array([bool(x) for x in right]),
    )
  texts = take_best(candidates, threshold)
  scores = None if right is None else span_metrics.score(texts, right)
  return Answers(candidates, texts, threshold, scores)


def take_best(
  candidates: Sequence[Candidates], threshold: float | None
) -> list[str]:
  """Returns the likeliest answers; '' where no answer is likelier."""
  return [
    ''
    if not x.texts or (threshold is not None and x.odds > threshold)
    else x.texts[0]
    for x in candidates
  ]


def summarise(scores: np.ndarray) -> dict[str, float]:
  """Returns the mean F1 and exact match of scores [Q, 2]."""
  exact, f1 = scores.mean(0)
  return {'f1': float(f1), 'exact_match': float(exact)}


def compare(scores: np.ndarray, constant: np.ndarray) -> dict[str, Any]:
  """Compares scores [Q, 2] with a constant's, as `metrics.compare` does."""
  values, size = summarise(scores), len(scores)
  _, f1, _, other = metrics.draw_sums(np.hstack([scores, constant])).T / size
  return {
    'metrics': values,
    'intervals': {
      'f1': metrics.find_interval(f1, metrics.find_wilson(values['f1'], size)),
      'exact_match': metrics.find_wilson(values['exact_match'], size),
    },
    'baseline': summarise(constant),
    'doubt': metrics.find_doubt(f1, other),
  }


def predict_constant(train: span_data.Split, unanswerable: bool) -> str:
  """Returns what a model that learnt nothing would answer to every question.

  Args:
    train: the training questions.
    unanswerable: whether a question may have no answer, '', which is then it;
      otherwise it is the commonest answer.
  """
  if unanswerable:
    return ''
  counts = collections.Counter(x[0] for x in train.answers)
  return counts.most_common(1)[0][0]


def list_best(one: Candidates, unanswerable: bool) -> list[dict[str, Any]]:
  """Returns candidates as in nbest_predictions.json, with probabilities.

  Args:
    one: the candidates of a question.
    unanswerable: whether no answer, '', is one of them.
  """
  texts, scores = list(one.texts), one.scores.reshape(-1, 2)
  if unanswerable or not texts:
    texts.append('')
    scores = np.concatenate([scores, one.null[None]])
  order = np.argsort(-scores.sum(-1), kind='stable')
  sums = scores.sum(-1)[order]
  likely = np.exp(sums - sums.max())
  likely /= likely.sum()
  return [
    {
      'text': texts[i],
      'probability': float(p),
      'start_logit': float(scores[i, 0]),
      'end_logit': float(scores[i, 1]),
    }
    for i, p in zip(order, likely, strict=True)
  ]
