"""Errors that a user can mend, and how every command reports them."""

import sys

from absl import app


class UserError(ValueError):
  """Says in one line what was got, what is allowed and what to do."""


class Interrupted(Exception):
  """SIGINT or SIGTERM asked the program to stop.

  Attributes:
    signum: the signal's number; the exit code is 128 + signum, as in a shell.
  """

  def __init__(self, signum: int, advice: str):
    super().__init__(advice)
    self.signum = signum


def run(main):
  """Runs `main(argv)` under absl and exits with its result.

  Args:
    main: takes the arguments that absl did not consume; returns an exit code
      or None. A UserError becomes one line on stderr and exit code 1,
      Interrupted one line and 128 + signal; anything else is a bug and keeps
      its traceback.
  """

  def guarded(argv):
    try:
      return main(argv)
    except UserError as error:
      print(f'error: {error}', file=sys.stderr)
      return 1
    except Interrupted as stop:
      print(f'\nstopped: {stop}', file=sys.stderr)
      return 128 + stop.signum

  app.run(guarded, flags_parser=_parse_flags)


def _parse_flags(argv):
  try:
    return app.parse_flags_with_usage(argv)
  # What ml_collections raises for an unknown field and for a missing file.
  except (UserError, AttributeError, IndexError, OSError) as error:
    text = ' '.join(str(error).split()).replace('"', '')
    print(f'error: {text}', file=sys.stderr)
    sys.exit(1)
