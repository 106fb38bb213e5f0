"""User errors, which are not bugs, and helpers for their messages."""

from collections.abc import Sequence

_MAX_LINE = 300  # characters


class UserError(ValueError):
  """An error whose message says, in one line, what is wrong and what to do.

  Attributes:
    exit_code: of a program that ends with it; `MAY_PASS` if the same command
      may succeed later.
  """

  exit_code = 1


MAY_PASS = 75  # EX_TEMPFAIL of sysexits.h


class Interrupted(BaseException):
  """SIGINT or SIGTERM asked the program to stop.

  Not an Exception, so that `except Exception` does not catch it.

  Attributes:
    signum: the signal's number; the exit code is 128 + signum, as in a shell.
    everywhere: whether all hosts of the run stop.
  """

  def __init__(self, signum: int, advice: str, everywhere: bool = False):
    super().__init__(advice)
    self.signum = signum
    self.everywhere = everywhere


def listing(words: Sequence[str], most: int = 6) -> str:
  """Joins words by commas, at most `most` of them, then 'and N more'."""
  more = f' and {len(words) - most} more' if len(words) > most else ''
  return (', '.join(words[:most]) or 'none') + more


def first_line(error: BaseException) -> str:
  """Returns a library's error message, for use within one of ours.

  It is the first line without a full stop, truncated if it is very long, or the
  name of the error's type if the message is empty.
  """
  line = (str(error).strip() or type(error).__name__).splitlines()[0]
  more = '...' if len(line) > _MAX_LINE else ''
  return line[:_MAX_LINE].rstrip('.') + more


def find_changes(old: dict, new: dict, prefix: str = '') -> list[str]:
  """Describes the differences between two dicts, in the order of the new one.

  Args:
    old: nested dict of JSON values.
    new: nested dict of JSON values.
    prefix: prefix for the names.

  Returns:
    Texts such as 'data.recipe.passes was 5, is 2'; missing values are None.
  """
  found = []
  for name in [*new, *(name for name in old if name not in new)]:
    was, now = old.get(name), new.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
      found += find_changes(was, now, f'{prefix}{name}.')
    elif was != now:
      found.append(f'{prefix}{name} was {was!r}, is {now!r}')
  return found
