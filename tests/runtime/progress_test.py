"""Tests of progress."""

import io
import sys

from bert_jax.runtime import progress
from tests import processes


class Terminal(io.StringIO):
  def isatty(self):
    return True


def test_a_bar_within_another_does_not_move_the_cursor(monkeypatch):
  monkeypatch.setattr(sys, 'stdout', Terminal())
  with progress.Progress(9, 'steps', 'training') as outer:
    with progress.Progress(1, 'files', 'compiling', leave=False) as inner:
      inner.update(1)
      outer.write('compiled')
    outer.update(9)
  shown = sys.stdout.getvalue()
  assert 'compiling: 100%' in shown and 'training: 100%' in shown
  assert 'compiled\n' in shown and '\x1b' not in shown


def test_without_a_terminal_lines_come_now_and_then(capsys, monkeypatch):
  now = [0.0]
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
  with progress.Progress(4_000_000, 'B', 'reading') as bar:
    for _ in range(3):
      now[0] += 4
      bar.update(400_000)
    bar.update(400_000)
  # One line at 12 s (1.2 MB done), none within ten seconds of it.
  assert capsys.readouterr().out == (
    'reading:  30% 1.20M/4.00M [00:12<00:28, 100kB/s]\n'
  )


def test_lines_come_ever_more_rarely(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
  shown = []
  for second in range(0, 4000, 5):
    now[0] = float(second)
    if progress.is_due(0.0, shown[-1] if shown else 0.0):
      shown.append(now[0])
  assert shown[:5] == [10, 30, 90, 270, 810]
  assert shown[-1] - shown[-2] == 600 and len(shown) < 12


# Processes of a pool are spawned, and so is what they start.
_TERMINATED = """
import multiprocessing, os, signal
multiprocessing.set_start_method('spawn')
from bert_jax.runtime import progress
bar = progress.Progress(None, 'B', 'counting words')
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_process_that_is_terminated_leaves_no_semaphore():
  ended = processes.run_code(_TERMINATED)
  assert (ended.returncode, ended.stderr) == (-15, '')
