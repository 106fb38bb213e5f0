"""What a command ends with."""

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
