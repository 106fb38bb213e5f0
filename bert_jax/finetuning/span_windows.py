"""Encodes questions with their passages, a long one in several windows.

As Google's run_squad.py does: [CLS] question [SEP] window [SEP], where windows
begin every `doc_stride` tokens. A token is in several windows then; an answer
may only begin in the window with most context on both sides of its token.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode
from bert_jax.finetuning.readers import squad
from bert_jax.inference import padding
from bert_jax.tokenization import offsets


@dataclasses.dataclass(frozen=True)
class Questions(encode.Rows):
  """N rows; those of a question follow one another. Windows are segment 1.

  Labels are where the answer begins and ends in each row, int32 [N, 2]; (0, 0),
  [CLS], if it is not there. A passage's tokens are its pieces. `ids` are those of
  the questions, Q.
  """

  questions: np.ndarray  # number of each row's question, int32 [N]
  tokens: np.ndarray  # first token of each window in its passage, int32 [N]
  starts: np.ndarray  # range in which an answer may begin, int32 [N, 2]
  answers: list[list[str]] | None  # the right ones of each; None if not known
  passages: list[str]
  passage_of: np.ndarray  # of each question, int32 [Q]
  # Characters at which the tokens of all passages begin and end, int32 [T].
  begins: np.ndarray
  ends: np.ndarray
  piece_ends: np.ndarray  # where the tokens of each passage end in these, int64

  def count(self):
    return len(self.ids)

  def make_batch(self, rows, length, pad_id):
    batch = super().make_batch(rows, length, pad_id)
    return batch | {'starts': self.starts[rows]}

  def get_text(self, question: int, first: int, last: int) -> str:
    """Returns the part of a question's passage from piece `first` to `last`."""
    passage = self.passage_of[question]
    skipped = self.piece_ends[passage - 1] if passage else 0
    begin, end = self.begins[skipped + first], self.ends[skipped + last]
    return self.passages[passage][begin:end]


def encode_questions(
  how: encode.How, content: squad.Squad, only_found: bool = False
) -> tuple[Questions, dict[str, list[str]]]:
  """Returns questions, and ids of those with a lost answer; or leaves these out."""
  located = offsets.locate(how.tokenizer, content.passages)
  spans, lost = find_spans(content, located)
  rows = content.units
  if only_found:
    left_out = set().union(*lost.values())
    kept = [i for i, x in enumerate(rows) if x.id not in left_out]
    rows, spans = [rows[i] for i in kept], spans[kept]
    if not rows:
      raise errors.UserError(
        f'{content.path}: no answer is where answer_start says; correct it.'
      )
  encoded, questions, tokens, starts = make(how, rows, located)
  known = all(x.answers is not None for x in rows)
  sizes = [len(x.ids) for x in located]
  return Questions(
    encoded,
    label(encoded, questions, tokens, spans) if known else None,
    questions,
    tokens,
    starts,
    blank=np.zeros(2, np.int32),
    ids=[x.id for x in rows],
    answers=[[text for text, _ in x.answers] for x in rows] if known else None,
    passages=list(content.passages),
    passage_of=np.array([x.passage for x in rows], np.int32),
    begins=np.concatenate([x.begins for x in located]),
    ends=np.concatenate([x.ends for x in located]),
    piece_ends=np.cumsum(sizes, dtype=np.int64),
  ), lost


def make(
  how: encode.How,
  rows: Sequence[squad.Question],
  passages: Sequence[offsets.Located],
) -> tuple[padding.Encoded, np.ndarray, np.ndarray, np.ndarray]:
  """Returns `encoded`, `questions`, `tokens` and `starts` of `Questions`.

  Special tokens in a text, such as '[SEP]', are ordinary words. A question is
  cut to `max_query_length`, and so that a token of the passage has room.
  """
  tokenizer, length = how.tokenizer, how.length
  most = min(how.settings.max_query_length, length - 4)
  cls, sep = (
    np.array([i], tokenizer.id_type)
    for i in (tokenizer.cls_id, tokenizer.sep_id)
  )
  parts, lengths, firsts, windows = [], [], [], []
  plans: dict[tuple[int, int], list] = {}
  packed = tokenizer.packed([x.text for x in rows])
  for number, (row, question) in enumerate(zip(rows, packed, strict=True)):
    query = np.frombuffer(question, tokenizer.id_type)[:most]
    ids = passages[row.passage].ids
    first, room = len(query) + 2, length - len(query) - 3
    key = len(ids), room
    if key not in plans:
      spans = split(len(ids), room, how.settings.doc_stride)
      plans[key] = list(zip(spans, find_best(spans), strict=True))
    for (begin, end), (low, high) in plans[key]:
      parts += [cls, query, sep, ids[begin:end], sep]
      lengths.append(first + end - begin + 1)
      firsts.append(first)
      windows.append((number, begin, first + low - begin, first + high - begin))
  table = np.array(windows, np.int32).reshape(-1, 4)
  encoded = padding.Encoded(
    ids=np.concatenate(parts),
    ends=np.cumsum(lengths, dtype=np.int64),
    firsts=np.array(firsts, np.int32),
  )
  return encoded, table[:, 0], table[:, 1], table[:, 2:]


def split(size: int, room: int, stride: int) -> list[tuple[int, int]]:
  """Returns the windows of a passage: (first token, one past the last).

  They have at most `room` tokens and begin `stride` apart; there is one at least.

  >>> split(10, 6, 3), split(6, 6, 3)
  ([(0, 6), (3, 9), (6, 10)], [(0, 6)])
  """
  spans = [(0, min(room, size))]
  while spans[-1][1] < size:
    begin = spans[-1][0] + min(room, stride)
    spans.append((begin, min(begin + room, size)))
  return spans


def find_best(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
  """Returns, for each window, the tokens for which it is the best context.

  In the best window, the smaller of the contexts to the left and to the right,
  plus a hundredth of the window's length, is largest; ties go to the first.
  These tokens follow one another; (first token, one past the last) are equal if
  there is none.

  >>> find_best([(0, 6), (3, 9), (6, 10)])
  [(0, 5), (5, 8), (8, 10)]
  """
  most = np.full(spans[-1][1], -1.0)  # the best score of each token
  best = np.zeros(len(most), int)
  for i, (begin, end) in enumerate(spans):
    token = np.arange(end - begin)
    scores = np.minimum(token, token[::-1]) + 0.01 * (end - begin)
    better = np.flatnonzero(scores > most[begin:end])
    most[begin + better], best[begin + better] = scores[better], i
  bounds = np.searchsorted(best, np.arange(len(spans) + 1))
  return [
    (int(a), int(b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)
  ]


def find_tokens(
  passage: offsets.Located, begin: int, end: int
) -> tuple[int, int] | None:
  """Returns the first and last token with any of these characters, or None."""
  first = int(np.searchsorted(passage.ends, begin, side='right'))
  last = int(np.searchsorted(passage.begins, end, side='left')) - 1
  return (first, last) if first <= last else None


def label(
  encoded: padding.Encoded,
  questions: np.ndarray,
  tokens: np.ndarray,
  spans: np.ndarray,
) -> np.ndarray:
  """Returns the labels of `Questions`.

  `spans` are the first and last token of each question's answer in its passage,
  int32 [Q, 2], negative if it has none. A part of an answer is none.
  """
  first = encoded.firsts[:, None]
  wanted = spans[questions]
  positions = wanted - tokens[:, None] + first
  last = encoded.lengths[:, None] - 2  # before [SEP]
  inside = (wanted >= 0) & (positions >= first) & (positions <= last)
  return np.where(inside.all(1, keepdims=True), positions, 0).astype(np.int32)


def find_spans(
  content: squad.Squad, located: list[offsets.Located]
) -> tuple[np.ndarray, dict[str, list[str]]]:
  """Returns the first good answer of each question, as `label` takes them.

  Also {what is wrong with all of its answers: ids of the questions}.
  """
  misplaced, unseen = [], []
  spans = np.full((len(content.units), 2), -1, np.int32)
  for k, question in enumerate(content.units):
    passage, problem = content.passages[question.passage], None
    for text, begin in question.answers or ():
      problem, tokens = misplaced, None
      if squad.is_placed(passage, text, begin):
        problem, end = unseen, begin + len(text)
        tokens = find_tokens(located[question.passage], begin, end)
      if tokens is not None:
        spans[k], problem = tokens, None
        break
    if problem is not None:
      problem.append(question.id)
  return spans, {
    'is not where answer_start says': misplaced,
    'has no characters that the model can see': unseen,
  }
