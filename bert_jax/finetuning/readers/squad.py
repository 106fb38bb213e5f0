"""Reads questions about passages from the JSON files of SQuAD 1.1 and 2.0.

XQuAD, KorQuAD and many others have the same form. Answers are given with the
character of the passage at which they begin.
"""

import dataclasses
import json
from typing import Any, NamedTuple

from bert_jax import errors
from bert_jax.finetuning.readers import splits, table_files


class Question(NamedTuple):
  """A question about a passage.

  Attributes:
    id: its id, under which predictions are written.
    passage: number of its passage in the file.
    answers: (text, first character in the passage) of each right answer; () if
      there is none, None if they are not known: without the field answers, or
      in a file that marks no question as answered or impossible.
  """

  id: str
  text: str
  passage: int
  answers: tuple[tuple[str, int], ...] | None


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
  """Reads a file."""
  text = table_files.read_text(path)
  try:
    content = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise errors.UserError(
      f'{path} is not JSON ({error}); give a file in the form of SQuAD.'
    ) from None
  passages: list[str] = []
  questions: list[Question] = []
  known = False  # whether any question has an answer, or is said to have none
  for i, article in enumerate(_get(path, '', content, 'data', list)):
    where = f'data[{i}]'
    for k, part in enumerate(_get(path, where, article, 'paragraphs', list)):
      inner = f'{where}.paragraphs[{k}]'
      passages.append(_get(path, inner, part, 'context', str))
      for n, row in enumerate(_get(path, inner, part, 'qas', list)):
        place = f'{inner}.qas[{n}]'
        questions.append(_read_question(path, place, row, len(passages) - 1))
        known = known or any(map(row.get, ('answers', 'is_impossible')))
  if not questions:
    raise errors.UserError(
      f'{path} has no questions; give a file that has some.'
    )
  _check_ids(path, questions)
  if not known:  # as in a test set whose answers are kept secret
    questions = [x._replace(answers=None) for x in questions]
  return Squad(path, questions, passages=tuple(passages))


def _read_question(path, where, row, passage) -> Question:
  found = Question(
    _get(path, where, row, 'id', str),
    _get(path, where, row, 'question', str),
    passage,
    None,
  )
  if row.get('is_impossible'):  # its answers are only plausible
    return found._replace(answers=())
  if 'answers' not in row:
    return found
  answers = []
  for m, answer in enumerate(_get(path, where, row, 'answers', list)):
    place = f'{where}.answers[{m}]'
    words = _get(path, place, answer, 'text', str)
    answers.append((words, _get(path, place, answer, 'answer_start', int)))
  return found._replace(answers=tuple(answers))


def _get(path, where, row, name, kind) -> Any:
  if not isinstance(row, dict):
    raise errors.UserError(
      f'{path}: {where or "the content"} is a {type(row).__name__}, not an '
      'object; give a file in the form of SQuAD.'
    )
  value = row.get(name)
  if type(value) is not kind:
    place = f'{where}.{name}' if where else name
    got = 'missing' if value is None else f'a {type(value).__name__}'
    raise errors.UserError(
      f'{path}: {place} is {got}, where the form of SQuAD has a '
      f'{kind.__name__}.'
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
