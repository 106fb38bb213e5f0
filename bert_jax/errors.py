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
