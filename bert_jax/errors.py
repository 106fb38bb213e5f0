"""User errors, which are not bugs, exit codes, and helpers for messages."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence

_MAX_LINE = 300  # characters

# Exit codes of all programs, see docs/faults.md; 128 + N after signal N.
MISTAKE = 1  # a UserError: the same command fails again
OTHER = 70  # EX_SOFTWARE of sysexits.h: a bug, a disk, a bucket, a device
HUNG = 75  # EX_TEMPFAIL: the training loop hung

# What a wrong path or a missing right raises.
_OF_PATHS = (
  *(FileNotFoundError, FileExistsError, PermissionError),
  *(IsADirectoryError, NotADirectoryError),
)


class UserError(ValueError):
  """An error whose message says, in one line, what is wrong and what to do."""


class Interrupted(BaseException):
  """A signal asked the program to stop.

  Not an Exception, so that `except Exception` does not catch it.

  Attributes:
    everywhere: whether all hosts of the run stop.
  """

  def __init__(self, signum: int, everywhere: bool = False):
    super().__init__('resume with the same command.')
    self.signum = signum
    self.everywhere = everywhere


def get_exit_code(error: BaseException) -> int:
  """Returns the exit code of a program that fails with an error."""
  if isinstance(error, Interrupted):
    return 128 + error.signum
  return MISTAKE if isinstance(error, UserError) else OTHER


@contextlib.contextmanager
def explaining(
  what: str,
  advice: str = '',
  kinds: type[Exception] | tuple[type[Exception], ...] = OSError,
) -> Iterator[None]:
  """Turns errors of the body, of these kinds, into 'WHAT: the reason; ADVICE'.

  A wrong path and what is no OSError become UserErrors; what a disk, a network
  or a bucket raises that is ill or full stays an OSError.
  """
  try:
    yield
  except UserError:
    raise
  except kinds as error:
    reason = getattr(error, 'strerror', None) or first_line(error)
    if isinstance(error, OSError) and not isinstance(error, _OF_PATHS):
      raise OSError(error.errno, f'{what}: {reason}') from error
    end = f'; {advice}' if advice else '.'
    raise UserError(f'{what}: {reason}{end}') from error


@contextlib.contextmanager
def within(place: str) -> Iterator[None]:
  """Puts a place, such as a file's path, before UserErrors of the body."""
  try:
    yield
  except UserError as error:
    raise UserError(f'{place}: {error}') from error


def at_line(path: str, line: int, problem: str) -> UserError:
  """Returns the error that something is wrong with a line of a user's file."""
  return UserError(f'{path}: line {line} {problem}')


def advise_converting(path: str) -> str:
  """Returns what to do with a text file that is not UTF-8."""
  return (
    f'convert it with: iconv -f ENCODING -t UTF-8 {shlex.quote(path)}, where '
    'ENCODING is what it has, such as CP1252, CP949, SHIFT_JIS or UTF-16LE'
  )


def listing(words: Sequence[str], most: int = 6) -> str:
  """Joins words by commas, at most `most` of them, then 'and N more'."""
  more = f' and {len(words) - most} more' if len(words) > most else ''
  return (', '.join(words[:most]) or 'none') + more


def count(number: int, noun: str) -> str:
  """Returns a number of things, in words.

  >>> count(1, 'row'), count(2000, 'row')
  ('1 row', '2,000 rows')
  """
  return f'{number:,} {noun}{"" if number == 1 else "s"}'


def get_message(error: BaseException) -> str:
  """Returns what an error says, or the name of its type if it says nothing."""
  if isinstance(error, OSError) and error.strerror and error.filename is None:
    return error.strerror  # without [Errno 5]
  return str(error).strip() or type(error).__name__


def first_line(error: BaseException) -> str:
  """Returns the first line of a message, for use within one of ours."""
  line = get_message(error).splitlines()[0]
  more = '...' if len(line) > _MAX_LINE else ''
  return line[:_MAX_LINE].rstrip('.') + more


def escape(text: str) -> str:
  """Spells out what would command a terminal, such as in the name of a file.

  >>> escape('a\\x1b[2Jb')
  'a\\\\x1b[2Jb'
  """
  return ''.join(
    x if x.isprintable() or x in '\t\n' else repr(x)[1:-1] for x in text
  )


def find_changes(old: dict, new: dict, prefix: str = '') -> list[str]:
  """Describes how two nested dicts of JSON differ, in the new one's order.

  Texts are like 'data.recipe.passes was 5, is 2'; missing values are None.
  """
  changes = []
  for name in [*new, *(name for name in old if name not in new)]:
    was, now = old.get(name), new.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
      changes += find_changes(was, now, f'{prefix}{name}.')
    elif was != now:
      changes.append(f'{prefix}{name} was {was!r}, is {now!r}')
  return changes
