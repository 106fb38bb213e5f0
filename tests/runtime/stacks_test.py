"""Tests of descriptions of what threads do."""

import builtins
import os
import threading

from bert_jax.runtime import stacks


def test_every_thread_is_shown_and_no_file_is_opened(monkeypatch):
  ready, done = threading.Event(), threading.Event()

  def wait_for_the_test():
    ready.set()
    done.wait()

  thread = threading.Thread(target=wait_for_the_test)
  thread.start()
  ready.wait()
  # It is to work while a file system does not answer.
  monkeypatch.setattr(builtins, 'open', None)
  monkeypatch.setattr(os, 'open', None)
  found = stacks.describe_stacks()
  monkeypatch.undo()
  done.set()
  thread.join()
  assert 'in wait_for_the_test\n' in found
  assert found.index('in describe_stacks') < found.index('in test_every_thread')


def test_more_than_a_pipe_holds_is_cut(monkeypatch):
  def dump(target):
    for _ in range(3):
      try:
        os.write(target, b'x' * 50_000)
      except BlockingIOError:  # which faulthandler ignores
        pass

  monkeypatch.setattr(stacks.faulthandler, 'dump_traceback', dump)
  assert 50_000 <= len(stacks.describe_stacks()) < 150_000


def test_nothing_stays_open():
  before = len(os.listdir('/dev/fd'))
  stacks.describe_stacks()
  assert len(os.listdir('/dev/fd')) == before
