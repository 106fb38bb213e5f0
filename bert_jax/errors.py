"""Errors that a user can mend, and how every command reports them."""

import logging
import sys

from absl import app, flags


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

  # jax says at INFO which accelerators it did not find.
  logging.getLogger('jax').setLevel(logging.WARNING)
  app.run(guarded, flags_parser=_parse_flags)


def _parse_flags(argv):
  try:
    return flags.FLAGS(argv)
  # The last two are what ml_collections raises for an unknown field.
  except (flags.Error, UserError, AttributeError, IndexError) as error:
    print(f'error: {_gist(error)} See --help.', file=sys.stderr)
    sys.exit(1)


def _gist(error: BaseException) -> str:
  """Returns one line; ml_collections puts whole tracebacks into its errors."""
  text = str(error).replace('\\n', '\n').replace("\\'", "'").strip()
  _, found, user_error = text.rpartition('UserError: ')
  if found:
    return user_error.strip()
  return ' '.join(text.strip('\'"').split())
