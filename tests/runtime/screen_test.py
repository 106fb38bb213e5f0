"""What commands print, and what they do when nobody reads it any more."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from bert_jax.runtime import screen
from tests import processes


@pytest.mark.parametrize(
  ('given', 'shown'),
  [
    ('한국어\tè\n', '한국어\tè\n'),
    ('\x1b[2J\x1b]0;title\x07', r'\x1b[2J\x1b]0;title\x07'),
    ('\x9b31m\x7f\b', r'\x9b31m\x7f\x08'),
    ('right\rwrong', r'right\x0dwrong'),
    # A bar begins its line again, and clears it.
    ('\rtraining: 3 steps', '\rtraining: 3 steps'),
    ('\r       \r', '\r       \r'),
    ('\r', '\r'),
  ],
)
def test_nothing_printed_commands_the_terminal(given, shown):
  assert screen.clean(given).replace('\r\r', '\r') == shown


_ESCAPES = """
import sys
from bert_jax import errors
from bert_jax.runtime import cli

def main():
  print('\\x1b[2Jword')
  print('warning: \\x1b[2Jhost', file=sys.stderr)
  raise errors.UserError('file \\x1b[2J\\nis not text')

cli.run(main)
"""


def test_a_command_prints_no_escape_of_others():
  done = processes.run_code(_ESCAPES)
  assert done.stdout == '\\x1b[2Jword\n'
  assert done.stderr == (
    'warning: \\x1b[2Jhost\nerror: file \\x1b[2J is not text\n'
  )


_TRAIN = """
import fcntl, signal, sys, termios, time
from bert_jax import errors
from bert_jax.runtime import cli, progress, signals

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
ignored = sys.argv[2] == 'nohup'  # whatever the tests themselves run under
signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)

def main(argv):
  with signals.recording() as stop:
    with progress.Progress(None, 'steps', 'training') as bar:
      for k in range(200):
        bar.update(1)
        print('step', k, flush=True)
        print('no reason', file=sys.stderr)
        time.sleep(0.01)
        if stop.signum is not None:
          break
  with open(argv[1], 'w') as file:
    file.write(f'saved after {stop.signum}')
  if stop.signum is not None:
    raise errors.Interrupted(stop.signum)

cli.run(main, takes_arguments=True)
"""


@pytest.mark.parametrize(
  ('how', 'code', 'number'), [('plain', 129, 1), ('nohup', 0, None)]
)
def test_a_run_whose_terminal_closes_saves_unless_told_to_go_on(
  how, code, number, tmp_path
):
  ours, theirs = pty.openpty()
  process = subprocess.Popen(
    [sys.executable, '-c', _TRAIN, str(tmp_path / 'saved'), how],
    stdin=theirs,
    stdout=theirs,
    stderr=theirs,
    start_new_session=True,
  )
  os.close(theirs)
  said = b''
  while b'step 20' not in said:
    said += os.read(ours, 4096)
  os.close(ours)
  assert process.wait() == code
  assert (tmp_path / 'saved').read_text() == f'saved after {number}'


def test_a_run_whose_reader_ends_saves(tmp_path):
  program = _TRAIN.replace('fcntl.ioctl', '(lambda *_: 0)')
  with subprocess.Popen(
    [sys.executable, '-c', program, str(tmp_path / 'saved'), 'plain'],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  ) as process:
    assert process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
  assert process.returncode == 128 + signal.SIGPIPE
  assert said.endswith(b'\nstopped: resume with the same command.\n')
  number = int(signal.SIGPIPE)
  assert (tmp_path / 'saved').read_text() == f'saved after {number}'
