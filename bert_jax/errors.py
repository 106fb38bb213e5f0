"""Errors that are no bugs."""

from collections.abc import Sequence

_MAX_LINE = 300  # characters


class UserError(ValueError):
  """Says in one line what was got, what is allowed and what to do."""


class Interrupted(BaseException):
  """SIGINT or SIGTERM asked the program to stop.

  No Exception: what is caught as a failure of something else must not hide it.

  Attributes:
    signum: the signal's number; the exit code is 128 + signum, as in a shell.
  """

  def __init__(self, signum: int, advice: str):
    super().__init__(advice)
    self.signum = signum


def listing(words: Sequence[str], most: int = 6) -> str:
  """Returns words as text, not more of them than fit a screen."""
  more = f' and {len(words) - most} more' if len(words) > most else ''
  return (', '.join(words[:most]) or 'none') + more


def first_line(error: BaseException) -> str:
  """Returns what an error of a library says, as a part of our own message.

  That is its first line without a full stop, cut if it is very long, or the
  name of its type if it says nothing.
  """
  line = (str(error).strip() or type(error).__name__).splitlines()[0]
  more = '...' if len(line) > _MAX_LINE else ''
  return line[:_MAX_LINE].rstrip('.') + more


def find_changes(old: dict, new: dict, prefix: str = '') -> list[str]:
  """Says what differs between two dicts, in the order of the new one.

  Args:
    old: JSON values, and dicts of them.
    new: the same.
    prefix: of the names.

  Returns:
    Texts such as 'data.recipe.passes was 5, is 2'; none if all is equal. What
    is missing is None.
  """
  found = []
  for name in [*new, *(name for name in old if name not in new)]:
    was, now = old.get(name), new.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
      found += find_changes(was, now, f'{prefix}{name}.')
    elif was != now:
      found.append(f'{prefix}{name} was {was!r}, is {now!r}')
  return found
