"""Errors that are no bugs."""

from collections.abc import Sequence


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
