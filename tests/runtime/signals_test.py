"""Tests of signals."""

import functools
import gc
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from bert_jax import errors
from bert_jax.runtime import signals


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM', 'SIGHUP'])
def test_raised_interrupts_where_it_is(foreground, name):
  number = getattr(signal, name)
  with pytest.raises(errors.Interrupted, match='resume with the') as caught:
    with signals.raising():
      os.kill(os.getpid(), number)
  assert caught.value.signum == number


def test_the_first_signal_is_recorded_but_no_hangup_that_is_ignored():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
  try:
    with signals.raising(), signals.recording() as stop:
      os.kill(os.getpid(), signal.SIGHUP)
      assert stop.signum is None
      os.kill(os.getpid(), signal.SIGTERM)
      os.kill(os.getpid(), signal.SIGINT)
    assert stop.signum == signal.SIGTERM
  finally:
    signal.signal(signal.SIGHUP, before)


def stop_in_a_callback():
  """Python ignores what is raised in callbacks of its garbage collector."""

  def interrupt(phase, info):
    del phase, info
    gc.callbacks.remove(interrupt)
    os.kill(os.getpid(), signal.SIGTERM)

  gc.callbacks.append(interrupt)
  gc.collect(0)


def replace():
  """Does what Orbax does with any exception while it reads."""
  try:
    os.kill(os.getpid(), signal.SIGTERM)
  except BaseException as error:
    raise ValueError('cannot read') from error


def replace_in_a_finalizer():
  """As where garbage collection closes a coroutine of Orbax."""

  class Reader:
    def __del__(self):
      replace()

  Reader()


def stop_in_a_hook():
  """As while an error in a finalizer, such as of Orbax, is shown."""

  class Reader:
    def __del__(self):
      raise ValueError

  Reader()


@pytest.mark.parametrize(
  'do',
  [stop_in_a_callback, replace, replace_in_a_finalizer, stop_in_a_hook],
)
def test_a_signal_that_python_or_a_library_drops_is_not_lost(do, monkeypatch):
  monkeypatch.setattr(signals, '_AGAIN', 0.01)  # what is sent again comes soon
  send = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
  monkeypatch.setattr(sys, 'unraisablehook', lambda _: send())
  with pytest.raises(errors.Interrupted) as caught:
    with signals.raising():
      do()
      for _ in range(100):
        time.sleep(0.05)
      pytest.fail('not interrupted')
  assert caught.value.signum == signal.SIGTERM


def test_what_goes_wrong_while_stopping_is_told():
  with pytest.raises(errors.UserError, match='cannot save'):
    with signals.raising():
      try:
        os.kill(os.getpid(), signal.SIGTERM)
      finally:
        raise errors.UserError('cannot save')


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

cli.run(main, takes_arguments=True, resumes=sys.argv[2] != "once")
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
    [sys.executable, '-c', program, str(tmp_path / 'saved'), 'once'],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  ) as process:
    assert process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
  assert process.returncode == 128 + signal.SIGPIPE
  assert said.endswith(b'\nstopped: nothing was written; start it again.\n')
  number = int(signal.SIGPIPE)
  assert (tmp_path / 'saved').read_text() == f'saved after {number}'
