"""Tests of the process of a run."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.runtime import signals
from bert_jax.sweep import process


def run(folder, program):
  return process.run(
    [sys.executable, '-S', '-c', program],
    str(folder),
    signals.Stop(),
    lambda: None,
  )


def test_the_last_lines_are_those_of_this_process(tmp_path):
  code, lines = run(tmp_path, 'print("old")')
  assert (code, lines) == (0, ['old'])
  code, lines = run(
    tmp_path, 'print(*range(20), "", sep="\\n"); raise SystemExit(3)'
  )
  assert (code, lines) == (3, [str(i) for i in range(10, 20)])
  assert (tmp_path / 'output.txt').read_text().startswith('old\n0\n1\n')


def test_how_it_ended_is_said():
  assert process.describe(3) == 'exit code 3'
  assert process.describe(-signal.SIGSEGV) == 'SIGSEGV'
  assert process.describe(-9) == 'SIGKILL, maybe for lack of memory'


_PARENT = """
import os, subprocess, sys
child = '''
import os, sys, time
from bert_jax.runtime import workers
workers.end_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
'''
subprocess.run([sys.executable, '-c', child, str(os.getpid())])
"""


@pytest.mark.slow
def test_a_run_ends_with_the_process_of_its_sweep():
  parent = subprocess.Popen(
    [sys.executable, '-c', _PARENT], stdout=subprocess.PIPE, text=True
  )
  child = int(parent.stdout.readline())
  parent.kill()
  parent.wait()
  deadline = time.monotonic() + 10
  while os.path.exists(f'/proc/{child}') and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not os.path.exists(f'/proc/{child}')
  parent.stdout.close()
