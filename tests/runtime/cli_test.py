"""What a command ends with."""

import os
import signal
import subprocess
import sys

import pytest

_COMMAND = """
from bert_jax import errors
from bert_jax.runtime import bucket, cli

def main(argv):
  raise {error}

cli.run(main)
"""


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    ("errors.UserError('x is wrong.')", 1),
    ("bucket.Unavailable('x is wrong.', 'wrong')", 1),
    ("bucket.Unavailable('x is wrong.', 'wrong', may_pass=True)", 75),
  ],
)
def test_an_error_that_may_pass_has_its_own_exit_code(error, code):
  done = subprocess.run(
    [sys.executable, '-c', _COMMAND.format(error=error)],
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stderr) == (code, 'error: x is wrong.\n')


_PRINT = """
from bert_jax.runtime import cli

def main(argv):
  for _ in range({times}):
    print('한국어', flush=True)

cli.run(main)
"""


def test_words_that_the_terminal_cannot_show_are_no_error():
  done = subprocess.run(
    [sys.executable, '-c', _PRINT.format(times=1)],
    env={**os.environ, 'PYTHONIOENCODING': 'latin-1'},
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stdout, done.stderr) == (0, '???\n', '')


def test_a_closed_output_ends_a_command_with_one_line():
  with subprocess.Popen(
    [sys.executable, '-c', _PRINT.format(times=100_000)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  ) as process:
    assert process.stdout.readline()
    process.stdout.close()
    printed = process.stderr.read()
  assert printed == b'stopped: nobody reads what is printed.\n'
  assert process.returncode == 128 + signal.SIGPIPE
