"""Reads questions about passages: the JSON of SQuAD 1.1 and 2.0, or flat rows.

XQuAD, KorQuAD and many others have SQuAD's form. Flat rows have a context each, in
JSONL, a list, or the list `data`. Answers are given with the character of the
passage at which they begin.
"""

import dataclasses
import itertools
import json
from typing import Any, NamedTuple

from bert_jax import errors
from bert_jax.finetuning.readers import splits, table_files

_FLAGS = {'true': True, 'false': False, 'none': False}


class Question(NamedTuple):
  """A question about a passage.

  Attributes:
    passage: number of its passage in the file.
    answers: (text, first character in the passage) of each right answer; () if
      there is none, None if they are not known: without the field answers, or
      in a file that marks no question as answered or impossible.
    impossible: whether the file says that there is none.
  """

  id: str
  text: str
  passage: int
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
  shared: dict[str, int] = {}  # numbers of the passages of flat rows
  questions: list[Question] = []
  for i, article in enumerate(_parse(path)):
    where = f'{path}: data[{i}]'
    if isinstance(article, dict) and 'question' in article:
      context = _get(where, article, 'context', str)
      number = shared.setdefault(context, len(passages))
      passages += [context] if number == len(passages) else []
      questions.append(_read_question(where, article, number))
      continue
    for k, part in enumerate(_get(where, article, 'paragraphs', list)):
      inner = f'{where}.paragraphs[{k}]'
      passages.append(_get(inner, part, 'context', str))
      for n, row in enumerate(_get(inner, part, 'qas', list)):
        place = f'{inner}.qas[{n}]'
        questions.append(_read_question(place, row, len(passages) - 1))
  if not questions:
    raise errors.UserError(
      f'{path} has no questions; give a file that has some.'
    )
  _check_ids(path, questions)
  if not any(x.answers or x.impossible for x in questions):
    # As in a test set whose answers are kept secret.
    questions = [x._replace(answers=None) for x in questions]
  return Squad(path, questions, passages=tuple(passages))


def _parse(path) -> list:
  """Returns the articles of a file, or its flat rows."""
  text = table_files.read_text(path)
  advice, kinds = (
    'give a file in the form of SQuAD.',
    (ValueError, RecursionError),
  )
  with errors.explaining(f'{path} is not JSON', advice, kinds):
    try:
      content = json.loads(text)
    except json.JSONDecodeError as error:
      if error.msg != 'Extra data':  # as after the first line of JSONL
        raise
      content = [json.loads(x) for x in text.split('\n') if x.strip()]
  if isinstance(content, dict) and 'question' in content:  # of a single line
    return [content]
  if isinstance(content, list) and content:
    return content
  return _get(f'{path}: the content', content, 'data', list)


def _read_question(where, row, passage) -> Question:
  text = _get(where, row, 'question', str)
  name = 'guid' if 'guid' in row and 'id' not in row else 'id'  # as in KLUE
  number = row.get(name)
  if type(number) is not int:
    number = _get(where, row, name, str)
  impossible = _FLAGS.get(str(row.get('is_impossible')).lower())
  if impossible is None:
    raise errors.UserError(
      f'{where}.is_impossible is {row["is_impossible"]!r}, not true or false.'
    )
  known = str(number), text, passage
  if impossible:
    return Question(*known, (), True)  # its answers are only plausible
  if row.get('answers') is None:
    return Question(*known, None)
  answers, place = row['answers'], f'{where}.answers'
  if isinstance(answers, dict):  # of lists, as of Hugging Face
    names = 'text', 'answer_start'
    lists = (_get(place, answers, x, list) for x in names)
    rows = itertools.zip_longest(*lists)
    row = {'answers': [dict(zip(names, x, strict=True)) for x in rows]}
  pairs = [
    (_get(x, y, 'text', str), _get(x, y, 'answer_start', int))
    for i, y in enumerate(_get(where, row, 'answers', list))
    for x in [f'{place}[{i}]']
  ]
  # An empty text is no answer.
  return Question(*known, tuple(x for x in pairs if x[0]))


def _get(where, row, name, kind) -> Any:
  value = row
  if isinstance(row, dict):
    where, value = f'{where}.{name}', row.get(name)
  else:
    kind = dict
  if type(value) is not kind:
    got = 'missing' if value is None else f'a {type(value).__name__}'
    raise errors.UserError(
      f'{where} is {got}, where the form of SQuAD has a {kind.__name__}.'
    )
  return value


def _check_ids(path, questions):
  seen: set[str] = set()
  twice = sorted({x.id for x in questions if x.id in seen or seen.add(x.id)})
  if twice:
    raise errors.UserError(
      f'{path}: {errors.count(len(twice), "id")} with several questions, such as '
      f'{twice[0]!r}; predictions are by id, so give each question its own.'
    )


def is_placed(passage: str, text: str, begin: int) -> bool:
  return begin >= 0 and passage[begin : begin + len(text)] == text
