"""Answers to questions: the likeliest spans of their windows, and their scores.

Scores follow SQuAD's evaluation scripts, 1.1 and 2.0, reimplemented here since
they are short and not packaged. The rules are made for English: texts are
compared without case, ASCII punctuation and the words a, an and the; F1 is over
words between spaces.
"""

import collections
import re
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.finetuning import encode
from bert_jax.model import classifier

MOST = 20  # likeliest answers of a question that are listed
_ARTICLES = re.compile(r'\b(a|an|the)\b')
_PUNCTUATION = str.maketrans('', '', string.punctuation)


def rank(
  logits: jax.Array, batch: dict[str, jax.Array], max_answer_length: int
) -> dict[str, jax.Array]:
  """Finds the likeliest answers in rows; nothing else of a row is kept.

  Google's code takes the 20 best first and the 20 best last tokens of a row,
  anywhere, and drops impossible pairs. Here every possible answer is compared.

  `logits` are of the first and the last token, float32 [B, S, 2]. Returns `firsts`
  and `lasts`: their tokens, int32 [B, N]; `scores`: logits of both, float32
  [B, N, 2], from the highest sum to the lowest, -inf if a row has fewer answers;
  `nulls`: logits of [CLS], [B, 2]. N is 20 or fewer.
  """
  length = logits.shape[1]
  widths = min(max_answer_length, length)
  token = jnp.arange(length)[None]
  low, high = batch['starts'][:, :1], batch['starts'][:, 1:]
  begins = (token >= low) & (token < high)  # [B, S]
  # The last token of segment 1 is [SEP].
  real = batch['input_mask'] * batch['segment_ids']
  ends = real * jnp.pad(real[:, 1:], ((0, 0), (0, 1))) == 1
  first = jnp.where(begins, logits[..., 0], -jnp.inf)
  last = jnp.where(ends, logits[..., 1], -jnp.inf)
  last = jnp.pad(last, ((0, 0), (0, widths - 1)), constant_values=-jnp.inf)
  sums = jnp.stack(
    [first + last[:, k : k + length] for k in range(widths)], -1
  )  # [B, S, widths]
  flat = sums.reshape(len(sums), -1)
  best, places = jax.lax.top_k(flat, min(MOST, flat.shape[1]))  # [B, N]
  firsts = (places // widths).astype(jnp.int32)
  lasts = firsts + (places % widths).astype(jnp.int32)
  start = jnp.take_along_axis(first, firsts, axis=1)
  return {
    'firsts': firsts,
    'lasts': lasts,
    'scores': jnp.stack([start, best - start], -1),
    'nulls': logits[:, 0],
  }


class Candidates(NamedTuple):
  """The likeliest answers to a question."""

  # Parts of its passage, each once, the likeliest first, if any can be an answer.
  texts: list[str]
  scores: (
    np.ndarray
  )  # logits of the first and last token of each, float64 [N, 2]
  null: np.ndarray  # of [CLS] in the window where their sum is smallest, [2]

  @property
  def odds(self) -> float:
    """Returns the score of having no answer minus the best answer's."""
    if not self.texts:
      return float(np.finfo(np.float32).max)
    return float(self.null.sum() - self.scores[0].sum())


def list_candidates(
  split: Any, ranked: dict[str, np.ndarray]
) -> list[Candidates]:
  """Returns the candidates for every question of a split."""
  bounds = np.searchsorted(split.questions, np.arange(split.count() + 1))
  # From tokens of the row to tokens of the passage.
  shift = (split.tokens - split.encoded.firsts)[:, None]
  firsts, lasts = ranked['firsts'] + shift, ranked['lasts'] + shift
  candidates = []
  for question in range(split.count()):
    rows = slice(bounds[question], bounds[question + 1])
    scores = ranked['scores'][rows].reshape(-1, 2).astype(np.float64)
    order = np.argsort(-scores.sum(-1), kind='stable')
    order = order[np.isfinite(scores[order].sum(-1))]
    kept: dict[str, int] = {}
    for i in order:
      ends = firsts[rows].flat[i], lasts[rows].flat[i]
      kept.setdefault(split.get_text(question, *ends), i)
      if len(kept) == MOST:
        break
    nulls = ranked['nulls'][rows].astype(np.float64)
    null = nulls[nulls.sum(-1).argmin()]
    candidates.append(Candidates(list(kept), scores[list(kept.values())], null))
  return candidates


class Answers(NamedTuple):
  """The answers to the questions of a split."""

  candidates: list[Candidates]
  texts: list[str]  # the chosen ones; '' is none
  threshold: float | None  # odds above which there is none, if there may be
  scores: np.ndarray | None  # exact match and F1, [Q, 2], if they are known


def choose(
  split: Any,
  ranked: dict[str, np.ndarray],
  settings: classifier.Spans,
  tune: bool = False,
) -> Answers:
  """Chooses answers; `tune` also chooses the threshold with the best F1."""
  candidates = list_candidates(split, ranked)
  best = [x.texts[0] if x.texts else '' for x in candidates]
  odds = np.array([x.odds for x in candidates])
  threshold, right = settings.threshold, split.answers
  if threshold is not None and tune:
    answerable = np.array([bool(x) for x in right])
    threshold = find_threshold(odds, score(best, right)[:, 1], answerable)
  most = np.inf if threshold is None else threshold
  texts = ['' if y > most else x for x, y in zip(best, odds, strict=True)]
  scores = None if right is None else score(texts, right)
  return Answers(candidates, texts, threshold, scores)


def predict_constant(
  answers: Sequence[Sequence[str]], unanswerable: bool
) -> str:
  """Returns the commonest answer or, where there may be none, ''."""
  if unanswerable:
    return ''
  # A file to predict for may have questions without an answer all the same.
  counts = collections.Counter(x[0] if x else '' for x in answers)
  return counts.most_common(1)[0][0]


def list_best(one: Candidates, unanswerable: bool) -> list[dict[str, Any]]:
  """Returns candidates as in nbest_predictions.json, with '' if allowed."""
  texts, scores = list(one.texts), one.scores.reshape(-1, 2)
  if unanswerable or not texts:
    texts.append('')
    scores = np.concatenate([scores, one.null[None]])
  order = np.argsort(-scores.sum(-1), kind='stable')
  likely = encode.to_probabilities(scores.sum(-1)[order])
  return [
    {
      'text': texts[i],
      'probability': float(p),
      'start_logit': float(scores[i, 0]),
      'end_logit': float(scores[i, 1]),
    }
    for i, p in zip(order, likely, strict=True)
  ]


def normalise(text: str) -> str:
  """Returns an answer in the form in which answers are compared.

  >>> normalise(' The U.S.  Army, an ally')
  'us army ally'
  """
  bare = text.lower().translate(_PUNCTUATION)
  return ' '.join(_ARTICLES.sub(' ', bare).split())


def compare_texts(answer: str, right: str) -> tuple[float, float]:
  """Returns (exact match, F1) of an answer and a right one, '' for none."""
  words, wanted = normalise(answer).split(), normalise(right).split()
  exact = float(words == wanted)
  common = collections.Counter(words) & collections.Counter(wanted)
  if not common:
    return exact, exact
  return exact, 2 * common.total() / (len(words) + len(wanted))


def score(answers: Sequence[str], right: Sequence[Sequence[str]]) -> np.ndarray:
  """Returns exact match and F1, [Q, 2], by the most similar right answer."""
  scores = np.zeros((len(answers), 2))
  for row, answer, known in zip(scores, answers, right, strict=True):
    # As the script of 2.0 does; the script of 1.1 keeps empty answers.
    known = [x for x in known if normalise(x)] or ['']
    row[:] = np.max([compare_texts(answer, x) for x in known], axis=0)
  return scores


def find_threshold(
  odds: np.ndarray, scores: np.ndarray, answerable: np.ndarray
) -> float:
  """Finds the odds above which questions are best left without an answer.

  Like SQuAD 2.0's script, it maximises the mean F1. Of equally good thresholds
  it returns the lowest: the odds of a question, or less than all odds.

  `odds` are of having no answer, `scores` the best answers' F1, [Q].
  """
  order = np.argsort(odds, kind='stable')
  # The gain from answering a question: an unanswerable one loses its point.
  gains = np.where(answerable, scores, -1.0)[order]
  totals = np.cumsum(gains)
  # Questions of equal odds are answered together.
  last = np.append(odds[order][1:] != odds[order][:-1], True)
  totals = np.where(last, totals, -np.inf)
  best = int(np.argmax(totals))
  if totals[best] <= 0:
    return float(odds.min()) - 1.0
  return float(odds[order][best])
