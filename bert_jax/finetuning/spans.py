"""The task of answering questions with a part of a passage.

Scores follow SQuAD's evaluation scripts, 1.1 and 2.0, reimplemented here since
they are short and not packaged. The rules are made for English: texts are
compared without case, ASCII punctuation and the words a, an and the; F1 is over
words between spaces.
"""

import collections
import os
import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import metrics, span_windows, supervised
from bert_jax.finetuning.readers import splits, squad
from bert_jax.model import classifier
from bert_jax.ops import tied_decoder
from bert_jax.runtime import files

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_PUNCTUATION = str.maketrans('', '', string.punctuation)


class Answers(NamedTuple):
  """The answers to the questions of a split."""

  texts: list[str]  # the chosen ones; '' is none
  # Scores of having no answer minus those of the best answers, [Q].
  odds: np.ndarray
  threshold: float | None  # odds above which there is none, if there may be
  scores: np.ndarray | None  # exact match and F1, [Q, 2], if they are known


class Spans(supervised.Supervised):
  """Answers to questions; predictions are `Answers`."""

  name = 'spans'
  pipeline, auto = 'question-answering', 'QuestionAnswering'
  counted = 'questions'
  unit = place = 'question'
  predicts = (
    'the answer to a question, as a part of a passage, or that it has none'
  )
  constant = 'the commonest answer; none, where questions may have none'
  extension = '.json'
  outputs = splits.QUESTIONS
  tuned = (
    'a question has no answer where that scores more than {:.3f} above the best '
    'one'
  )
  columns, needed, takes_keep = 0, (), False
  takes_label = False  # the answers are in the file

  def read(self, path, columns, labelled, asked=splits.FIELDS):
    return squad.read(path)

  def list_labels(self, source, contents):
    """Returns two outputs; checks that answers are known and, in 1.1, exist."""
    for split, content in contents.items():
      unknown = [x.id for x in content.units if x.answers is None]
      without = [x.id for x in content.units if x.answers == ()]
      if unknown and split != 'test':
        count, advice = len(unknown), 'only a test file may lack them.'
        problem = f'whose answers are not given, such as {unknown[0]!r}'
      elif without and not source.unanswerable:
        count, advice = len(without), 'configs/squad.py:v2 allows them.'
        problem = f'without an answer, such as {without[0]!r}'
      else:
        continue
      what = f'{errors.count(count, "question")} of {split}'
      raise errors.UserError(f'{content.path}: {what} {problem}; {advice}')
    return 'start', 'end'

  def encode(self, how, content, labels, split=''):
    """Encodes questions; drops training questions whose answer is lost."""
    rows, lost = span_windows.encode_questions(how, content, split == 'train')
    known, done = rows.answers is not None, 'kept for their score'
    none = f'{rows.answers.count([]):,} without' if known else 'unknown'
    if split == 'train':
      done = 'left out'
    counts = [
      f'{errors.count(rows.count(), "question")} (answers: {none})',
      errors.count(len(rows.passages), 'passage'),
      errors.count(rows.size, 'window'),
    ]
    warnings = {f'whose answer {what}, {done}': x for what, x in lost.items()}
    if split == 'train':
      gone = set().union(*lost.values())
      warnings['whose first answer is misplaced, learnt from another'] = [
        x.id
        for x in content.units
        if x.answers and x.id not in gone
        if not squad.is_placed(content.passages[x.passage], *x.answers[0])
      ]
    return rows, {'counts': counts, 'warnings': warnings}

  def list_shapes(self, f, module, phase, rows):
    pairs = jax.ShapeDtypeStruct((rows, 2), jnp.int32)
    shapes = super().list_shapes(f, module, phase, rows)
    return shapes | {'labels': pairs, 'starts': pairs}

  def compute_sums(self, module, params, batch, key, settings=None):
    """Returns ({metric: sum over a batch}, `find_best` of its logits).

    The loss of a row is the mean of those of the first and of the last token. A
    row counts as a hit if both are right. In training no answer is sought.
    """
    logits = supervised.apply(module, params, batch, key)  # [B, S, 2]
    best = {}
    if key is None:
      best = find_best(logits, batch, settings.max_answer_length)
    # Padding cannot be an answer, so that it changes no loss. In Google's code
    # and in transformers it competes with the tokens.
    real = batch['input_mask'][..., None]
    logits = jnp.where(real == 1, logits, jnp.finfo(jnp.float32).min)
    logits = jnp.swapaxes(logits, 1, 2)  # [B, 2, S]
    weights = jnp.broadcast_to(
      batch['label_weights'][:, None], batch['labels'].shape
    )
    loss, _ = tied_decoder.sum_tokens(logits, batch['labels'], weights)
    right = jnp.all(jnp.argmax(logits, -1) == batch['labels'], -1)
    hits = jnp.sum(right * batch['label_weights'])
    return {'cross_entropy': loss / 2, 'accuracy': hits}, best

  def list_sums(self, f, module):
    return supervised.SUMS, {}, None

  def decide(self, split, kept, settings, tune):
    answers = choose(split, kept, settings, tune)
    return answers, settings._replace(threshold=answers.threshold)

  def list_metrics(self, labels, f=None):
    return 'f1', 'exact_match'

  def compare(self, names, labels, split, predicted, train=None):
    def divide(sums):
      exact, f1 = sums / split.count()
      return {'f1': f1, 'exact_match': exact}

    if train is None:
      return {'metrics': metrics.score_sums(predicted.scores, divide)}
    unanswerable = predicted.threshold is not None
    constants = {
      predict_constant(x.answers, unanswerable) for x in (train, split)
    }
    size = split.count()
    others = (score([x] * size, split.answers) for x in constants)
    best = max(others, key=lambda x: x[:, 1].mean())  # by F1
    return metrics.compare_sums(predicted.scores, best, divide)

  def find_problem(self, scored, predicted):
    different = np.unique(predicted.texts, return_inverse=True)[1]
    return metrics.find_problem(scored, different)

  def write_split(self, folder, name, labels, split, predicted):
    """Writes the files that SQuAD's evaluation scripts read."""
    written = {'predictions': predicted.texts}
    if predicted.threshold is not None:
      written['null_odds'] = predicted.odds.tolist()
    for kind, values in written.items():
      path = os.path.join(folder, f'{name}.{kind}.json')
      files.write_json(path, dict(zip(split.ids, values, strict=True)))

  def write_given(self, job, content, split, predicted):
    """Writes {id of a question: answer}, as the evaluation scripts read it."""
    texts = dict(zip(split.ids, predicted.texts, strict=True))
    files.write_json(job.output, texts)


TASK = Spans()


def find_best(
  logits: jax.Array, batch: dict[str, jax.Array], max_answer_length: int
) -> dict[str, jax.Array]:
  """Finds the likeliest answer in each row; nothing else of a row is kept.

  Google's code takes the 20 best first and the 20 best last tokens of a row,
  anywhere, and drops impossible pairs. Here every possible answer is compared.

  `logits` are of the first and the last token, float32 [B, S, 2]. Returns `firsts`
  and `lasts`: its tokens, int32 [B]; `scores`: logits of both, float32 [B, 2], whose
  sum is -inf if a row has no answer; `nulls`: logits of [CLS], [B, 2].
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
  ).reshape(len(logits), -1)  # [B, S widths]
  place = jnp.argmax(sums, 1).astype(jnp.int32)  # [B]
  rows, firsts = jnp.arange(len(sums)), place // widths
  start = first[rows, firsts]
  return {
    'firsts': firsts,
    'lasts': firsts + place % widths,
    'scores': jnp.stack([start, sums[rows, place] - start], -1),
    'nulls': logits[:, 0],
  }


def choose(
  split: span_windows.Questions,
  best: dict[str, np.ndarray],
  settings: classifier.Spans,
  tune: bool = False,
) -> Answers:
  """Chooses answers from the best of each row, see `find_best`.

  `tune` also chooses the threshold with the best F1. A question's answer is the
  best of its rows; having none scores what [CLS] does where that is least.
  """
  bounds = np.searchsorted(split.questions, np.arange(split.count()))
  sums, nulls = (best[x].astype(float).sum(-1) for x in ('scores', 'nulls'))
  sums = np.where(np.isfinite(sums), sums, -np.inf)
  # The first of equal ones.
  order = np.lexsort((-np.arange(len(sums)), sums, split.questions))
  rows = order[np.append(bounds[1:], len(sums)) - 1]
  odds = np.minimum.reduceat(nulls, bounds) - sums[rows]
  odds[np.isinf(odds)] = np.finfo(np.float32).max  # which JSON can hold
  # From tokens of the row to tokens of the passage.
  ends = (
    best[x] + split.tokens - split.encoded.firsts for x in ('firsts', 'lasts')
  )
  texts = [
    split.get_text(question, *x) if np.isfinite(sums[row]) else ''
    for question, (row, *x) in enumerate(
      zip(rows, *(x[rows] for x in ends), strict=True)
    )
  ]
  threshold, right = settings.threshold, split.answers
  if threshold is not None and tune:
    answerable = np.array([bool(x) for x in right])
    threshold = find_threshold(odds, score(texts, right)[:, 1], answerable)
  most = np.inf if threshold is None else threshold
  texts = ['' if y > most else x for x, y in zip(texts, odds, strict=True)]
  scores = None if right is None else score(texts, right)
  return Answers(texts, odds, threshold, scores)


def predict_constant(
  answers: Sequence[Sequence[str]], unanswerable: bool
) -> str:
  """Returns the commonest answer or, where there may be none, ''."""
  if unanswerable:
    return ''
  # A file to predict for may have questions without an answer all the same.
  counts = collections.Counter(x[0] if x else '' for x in answers)
  return counts.most_common(1)[0][0]


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

  Like SQuAD 2.0's script, it maximises the mean F1; of equally good thresholds it
  is the lowest, but half-way between two questions, so that rounding moves none.

  `odds` are of having no answer, `scores` the best answers' F1, [Q].
  """
  order = np.argsort(odds, kind='stable')
  ends = odds[order][[0, *range(len(odds)), -1]] + [-2, *[0] * len(odds), 2]
  # The gain from answering a question: an unanswerable one loses its point.
  gains = np.where(answerable, scores, -1.0)[order]
  totals = np.cumsum([0, *gains])
  totals[ends[1:] == ends[:-1]] = -np.inf  # equal odds are answered together
  best = int(np.argmax(totals))
  return float(ends[best : best + 2].mean())
