"""What a row of the fault matrix is, and how it is judged."""

import dataclasses
import textwrap
from collections.abc import Callable

from bert_jax import errors


class Broken(Exception):
  """A promise that was not kept."""


class Skipped(Exception):
  """Something is missing here that the measurement needs."""


@dataclasses.dataclass(frozen=True)
class Fault:
  """A row of the matrix.

  Attributes:
    name: its name, for --only.
    done: what is done to the program.
    promised: what the program promises then.
    measure: (small_run.Base, empty folder) -> what was measured; raises
      `Broken` or anything else if the promise was not kept.
  """

  name: str
  done: str
  promised: str
  measure: Callable


def expect(condition, text: str):
  """Raises `Broken` unless a condition holds."""
  if not condition:
    raise Broken(text)


def expect_error(call: Callable, *words: str, code: int = 1) -> str:
  """Calls something that must end with one clear line; returns the line.

  Args:
    call: what must raise errors.UserError.
    words: must all be in its message.
    code: the exit code that it must have.
  """
  try:
    found = call()
  except errors.UserError as error:
    text = str(error)
    expect('\n' not in text, f'more than one line: {text}')
    missing = [word for word in words if word not in text]
    expect(not missing, f'it does not say {missing}: {text}')
    expect(error.exit_code == code, f'exit code {error.exit_code}: {text}')
    return text
  raise Broken(f'no error, but {str(found)[-300:]!r}')


def expect_line(code: int, text: str, *words: str, expected: int = 1) -> str:
  """Checks how a process ended; returns its last line.

  Args:
    code: its exit code.
    text: what it printed.
    words: must all be in its line 'error: ...'.
    expected: the exit code that it must have.
  """
  expect(code == expected, f'exit code {code}:\n{text[-3000:]}')
  lines = [x for x in text.splitlines() if x.startswith('error: ')]
  expect(len(lines) == 1, f'{len(lines)} lines of errors:\n{text[-3000:]}')
  expect('Traceback' not in text, text[-3000:])
  missing = [word for word in words if word not in lines[0]]
  expect(not missing, f'it does not say {missing}: {lines[0]}')
  return lines[0]


def quote(text: str, start: str = '', most: int = 70) -> str:
  """Returns the words of a text from `start` on, in quotes, at most so long."""
  begin = text.index(start)
  words = textwrap.shorten(text[begin:], most, placeholder=' ...')
  return f'"{"... " if begin else ""}{words}"'


def expect_same(found: dict, expected: dict):
  """Checks that a run ended as another: bits, export and every loss."""
  for name, value in expected.items():
    expect(found[name] == value, f'{name}: {found[name]}, expected {value}')
