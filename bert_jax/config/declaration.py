"""What declares a field of a config: default, meaning, values, resumption."""

import dataclasses
import operator
import re
import unicodedata
from typing import Any, NamedTuple

# The effect of another value on a run that has begun: the result stays the
# same; only rounding or random numbers of the same distribution change; it is
# another experiment.
SAME_RESULT, SAME_MEANING, ANOTHER = 'result', 'meaning', 'another'

# Categories of characters that would end a line or path, or fail to print.
_CONTROL = {'Cc', 'Cs', 'Zl', 'Zp'}


class Range(NamedTuple):
  """Bounds of a number, and of each number of a tuple."""

  least: float | None = None
  most: float | None = None
  above: float | None = None
  below: float | None = None

  def find_problem(self, value: Any) -> str:
    """Returns what is wrong with a value; '' if nothing is."""
    bounds = (
      ('at least', self.least, operator.ge),
      ('above', self.above, operator.gt),
      ('at most', self.most, operator.le),
      ('below', self.below, operator.lt),
    )
    given = [bound for bound in bounds if bound[1] is not None]
    numbers = value if isinstance(value, tuple) else (value,)
    if all(holds(x, bound) for _, bound, holds in given for x in numbers):
      return ''
    allowed = ' and '.join(f'{words} {bound}' for words, bound, _ in given)
    return f'={value} must be {allowed}'


class Choice(tuple):
  """The values that a text may have."""

  def __new__(cls, *values: str):
    return super().__new__(cls, values)

  def find_problem(self, value: str) -> str:
    wrong = f'={value!r} is not one of {", ".join(self)}'
    return '' if value in self else wrong


class Text(NamedTuple):
  """A text of one line."""

  may_be_empty: bool = True
  pattern: str = '.*'  # regular expression
  form: str = ''  # what the pattern asks for, in words

  def find_problem(self, value: str) -> str:
    if not (value or self.may_be_empty):
      return ' is empty'
    if _CONTROL & set(map(unicodedata.category, value)):
      return f'={value!r} has control characters'
    if not re.fullmatch(self.pattern, value):
      return f'={value!r} is not {self.form}'
    return ''


@dataclasses.dataclass(frozen=True)
class Field:
  """A field of a config.

  Attributes:
    default: its value unless given; shows its type.
    allowed: its values, of text any if not given, of others true and false.
    resume: what another value does to a run that has begun.
    example: shows the type of a tuple whose default is empty.
    in_runs: a further meaning, except in commands that prepare data.
  """

  default: Any
  meaning: str
  allowed: Range | Choice | Text = Text()
  resume: str = ANOTHER
  example: Any = None
  in_runs: str = ''

  @property
  def like(self) -> Any:
    """A value of the field's type."""
    return self.default if self.example is None else self.example

  def has_type_of(self, value: Any) -> bool:
    """Returns whether a value has the field's type; ints may be floats."""
    return _is_like(value, self.like)

  def find_problem(self, name: str, value: Any) -> str:
    """Returns 'NAME=VALUE must be ...' for a wrong value; '' for others."""
    if not self.has_type_of(value):
      one = self.like[0] if isinstance(self.like, tuple) else self.like
      more = ', of whole numbers' if type(one) is int else ''
      return f'{name}={value!r} must be of the type of {self.like!r}{more}'
    if isinstance(value, bool):
      return ''
    problem = self.allowed.find_problem(value)
    return problem and name + problem


def _is_like(value, like) -> bool:
  if isinstance(like, tuple):
    return isinstance(value, tuple) and all(_is_like(v, like[0]) for v in value)
  return type(value) in (type(like), int if isinstance(like, float) else None)
