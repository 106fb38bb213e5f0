"""Scores answers by the rules of SQuAD's evaluation scripts, 1.1 and 2.0.

Ours instead of a library's: the scripts are not packaged, and the rules are a
few lines. They are made for English: without case, punctuation of ASCII and the
words a, an and the; F1 is of words between spaces.
"""

import collections
import re
import string
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_PUNCTUATION = str.maketrans('', '', string.punctuation)


def normalise(text: str) -> str:
  """Returns what is compared of an answer.

  >>> normalise(' The U.S.  Army, an ally')
  'us army ally'
  """
  bare = text.lower().translate(_PUNCTUATION)
  return ' '.join(_ARTICLES.sub(' ', bare).split())


def compare(answer: str, right: str) -> tuple[float, float]:
  """Returns (exact match, F1) of an answer and a right one, '' for none."""
  answer, right = normalise(answer), normalise(right)
  words, wanted = answer.split(), right.split()
  exact = float(answer == right)
  common = sum(
    (collections.Counter(words) & collections.Counter(wanted)).values()
  )
  if not common:
    return exact, exact
  return exact, 2 * common / (len(words) + len(wanted))


def score(answers: Sequence[str], right: Sequence[Sequence[str]]) -> np.ndarray:
  """Scores answers, each by the most similar of the right ones.

  Args:
    answers: one for each of Q questions; '' is none.
    right: the right answers to each question; () if there is none.

  Returns:
    Exact match and F1 of each question, float64 [Q, 2].
  """
  found = np.zeros((len(answers), 2))
  for row, answer, known in zip(found, answers, right, strict=True):
    # As the script of 2.0 does; that of 1.1 keeps those of which nothing remains.
    known = [x for x in known if normalise(x)] or ['']
    row[:] = np.max([compare(answer, x) for x in known], axis=0)
  return found


def find_threshold(
  odds: np.ndarray, scores: np.ndarray, answerable: np.ndarray
) -> float:
  """Finds above which odds questions are best said to have no answer.

  As the script of SQuAD 2.0 does: by the mean F1. Of equally good thresholds it
  is the lowest.

  Args:
    odds: of each question having no answer, [Q].
    scores: F1 of each question's best answer, [Q].
    answerable: whether it has one, bool [Q].

  Returns:
    The threshold: the odds of a question, or less than all of them.
  """
  order = np.argsort(odds, kind='stable')
  # What answering a question gains; without any answer, the others are right.
  gains = np.where(answerable, scores, -1.0)[order]
  totals = np.cumsum(gains)
  # Questions of equal odds are answered together.
  last = np.append(odds[order][1:] != odds[order][:-1], True)
  totals = np.where(last, totals, -np.inf)
  best = int(np.argmax(totals))
  if totals[best] <= 0:
    return float(odds.min()) - 1.0
  return float(odds[order][best])
