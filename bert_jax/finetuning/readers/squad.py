"""Reads questions about passages: the JSON of SQuAD 1.1 and 2.0, or flat rows.

XQuAD, KorQuAD and many others have SQuAD's form. Flat rows have a context each, in
JSONL, a list, or the list `data`. Answers are given with the character of the
passage at which they begin.
"""

import collections
import dataclasses
import json
from typing import NamedTuple

from bert_jax import errors
from bert_jax.finetuning.readers import splits, table_files

_FLAGS = {'true': True, 'false': False, 'none': False}
_WRONG = KeyError, TypeError, ValueError, AttributeError


class Question(NamedTuple):
  """A question about a passage."""

  id: str
  text: str
  passage: int  # its number in the file
  # (text, first character in the passage) of each right answer; () if there is
  # none, None if they are not known: without the field answers, or in a file that
  # marks no question as answered or impossible.
  answers: tuple[tuple[str, int], ...] | None
  impossible: bool = False


@dataclasses.dataclass(frozen=True)
class Squad(splits.Content):
  """The content of a file: questions, in `units`, and their passages."""

  passages: tuple[str, ...] = ()

  def list_groups(self):
    return [x.passage for x in self.units]

  def list_keys(self):
    return [(x.id, (x.text, self.passages[x.passage])) for x in self.units]

  def take(self, chosen):
    """Returns some of the questions, by number, and the passages they need."""
    taken = super().take(chosen).units
    needed = sorted({x.passage for x in taken})
    numbers = {passage: i for i, passage in enumerate(needed)}
    return dataclasses.replace(
      self,
      units=[x._replace(passage=numbers[x.passage]) for x in taken],
      passages=tuple(self.passages[i] for i in needed),
    )


def read(path: str) -> Squad:
  passages: list[str] = []
  numbers: dict[str, int] = {}  # of the passages of flat rows
  questions: list[Question] = []
  for i, article in enumerate(_parse(path)):
    what = f'{path}: data[{i}] is not in the form of SQuAD'
    with errors.explaining(what, 'correct it.', _WRONG):
      if 'question' in article:
        context = _check_text(article['context'])
        number = numbers.setdefault(context, len(passages))
        passages += [context] if number == len(passages) else []
        questions.append(_read_question(article, number))
        continue
      for part in article['paragraphs']:
        passages.append(_check_text(part['context']))
        number = len(passages) - 1
        questions += [_read_question(x, number) for x in part['qas']]
  counts = collections.Counter(x.id for x in questions)
  twice = sorted(x for x, count in counts.items() if count > 1)
  if twice or not questions:
    problem = 'has no questions; give a file that has some.'
    if twice:
      problem = (
        f'has several questions with the id {twice[0]!r}; predictions are '
      )
      problem += 'by id, so give each its own.'
    raise errors.UserError(f'{path} {problem}')
  if not any(x.answers or x.impossible for x in questions):
    # As in a test set whose answers are kept secret.
    questions = [x._replace(answers=None) for x in questions]
  return Squad(path, questions, passages=tuple(passages))


def _parse(path) -> list:
  """Returns the articles of a file, or its flat rows."""
  text = table_files.read_text(path)
  what = f'{path} is not JSON in the form of SQuAD'
  with errors.explaining(what, 'correct it.', (*_WRONG, RecursionError)):
    try:
      content = json.loads(text)
    except json.JSONDecodeError as error:
      if error.msg != 'Extra data':  # as after the first line of JSONL
        raise
      content = [json.loads(x) for x in text.split('\n') if x.strip()]
    if 'question' in content:  # of a single line
      return [content]
    return content if isinstance(content, list) else list(content['data'])


def _read_question(row, passage) -> Question:
  name = 'guid' if 'guid' in row and 'id' not in row else 'id'  # as in KLUE
  known = str(row[name]), _check_text(row['question']), passage
  impossible = _FLAGS.get(str(row.get('is_impossible')).lower())
  if impossible is None:
    raise ValueError(f'is_impossible is {row["is_impossible"]!r}')
  if impossible:
    return Question(*known, (), True)  # its answers are only plausible
  answers = row.get('answers')
  if answers is None:
    return Question(*known, None)
  if isinstance(answers, dict):  # of lists, as of Hugging Face
    pairs = zip(answers['text'], answers['answer_start'], strict=True)
  else:
    pairs = [(x['text'], x['answer_start']) for x in answers]
  # An empty text is no answer.
  pairs = ((_check_text(text), int(begin)) for text, begin in pairs)
  return Question(*known, tuple(x for x in pairs if x[0]))


def _check_text(value: str) -> str:
  if not isinstance(value, str):
    raise TypeError(f'{value!r} is not a text')
  return value


def is_placed(passage: str, text: str, begin: int) -> bool:
  return begin >= 0 and passage[begin : begin + len(text)] == text
