"""Tests of descriptions of what threads do."""

import builtins
import threading

from bert_jax.runtime import stacks


def test_every_thread_is_shown_with_its_innermost_call_last(monkeypatch):
  ready, done = threading.Event(), threading.Event()

  def wait_for_the_test():
    ready.set()
    done.wait()

  thread = threading.Thread(target=wait_for_the_test, name='loader')
  thread.start()
  ready.wait()
  # It is to work while a file system does not answer.
  monkeypatch.setattr(builtins, 'open', None)
  found = stacks.describe_stacks()
  monkeypatch.undo()
  done.set()
  thread.join()
  main, loader = found.index('MainThread:'), found.index('loader:')
  assert 'stacks_test.py:' in found
  own = found[main:loader] if main < loader else found[main:]
  assert own.index('in test_every_thread') < own.index('in describe_stacks')
  assert 'in wait_for_the_test' in found[loader:]
