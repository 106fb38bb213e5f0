"""Runs commands: every act on the outside world is one argument list."""

import dataclasses
import shlex
import subprocess
import sys
import time
from collections.abc import Callable

from launch import failures

# Seconds between the tries of a command that only reads.
_PAUSES = (2, 5, 10, 20)


@dataclasses.dataclass(frozen=True)
class Result:
  """What a command did.

  Attributes:
    code: its exit code; 124 if it took too long.
    out: its standard output.
    err: its standard error.
  """

  code: int
  out: str = ''
  err: str = ''


# Called as execute(argv) or execute(argv, seconds=maximum).
Execute = Callable[..., Result]


class CommandError(Exception):
  """A command failed, so that what it asked for is not known.

  Attributes:
    detail: its standard error, for those who tell errors apart: the message may
      name the command, whose arguments may look like any error.
  """

  def __init__(self, message: str, detail: str):
    super().__init__(message)
    self.detail = detail


def execute(argv: list[str], seconds: int = 900) -> Result:
  """Runs a command and waits for it.

  Args:
    argv: program and arguments; no shell reads them.
    seconds: maximum time.
  """
  try:
    done = subprocess.run(
      argv,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      timeout=seconds,
      check=False,
    )
  except FileNotFoundError:
    return Result(127, err=f'{argv[0]} is not installed.')
  except subprocess.TimeoutExpired:
    return Result(124, err=f'timed out after {seconds} s')
  return Result(
    done.returncode,
    done.stdout.decode(errors='replace'),
    done.stderr.decode(errors='replace'),
  )


def print_instead(argv: list[str], seconds: int = 0) -> Result:
  """Prints a command instead of running it, as `--dry_run` does."""
  del seconds
  say(shlex.join(argv))
  return Result(0)


def ask(run: Execute, argv: list[str], sleep=time.sleep) -> str:
  """Returns the output of a command that changes nothing.

  Tries again while the service is busy or cannot be reached.

  Args:
    run: `execute` or a stand-in.
    argv: the command.
    sleep: waits for some seconds.

  Raises:
    CommandError: if it fails for good.
  """
  for pause in (*_PAUSES, None):
    result = run(argv)
    if result.code == 0:
      return result.out
    if pause is None or not failures.is_transient(result.err):
      break
    sleep(pause)
  raise CommandError(
    f'{shlex.join(argv)} failed with exit code {result.code}: '
    f'{failures.shorten(result.err)}',
    result.err,
  )


def say(line: str):
  """Prints a line at once, also into a pipe."""
  print(line, flush=True)


def warn(line: str):
  """Prints a line on standard error."""
  print(line, file=sys.stderr, flush=True)
