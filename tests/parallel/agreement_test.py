"""Tests of what must be the same on all hosts."""

import threading

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import agreement


def test_code_names_every_module():
  found = agreement.hash_code()
  assert {
    'bert_jax',
    'jax',
    'trainer/loop.py',
    'pretraining/batches.py',
  } <= set(found)


@pytest.fixture
def on_hosts(monkeypatch):
  """Returns a function that calls another with each value, as on hosts."""

  def run(function, values):
    results = [None] * len(values)
    given = threading.local()
    written, wait = [None] * len(values), threading.Barrier(len(values))

    def gather(array):
      written[given.host] = array
      wait.wait(10)
      found = np.stack(written)  # fails if their shapes differ
      wait.wait(10)
      return found

    def start(host):
      given.host = host
      try:
        results[host] = function(values[host])
      except errors.UserError as error:
        results[host] = error

    monkeypatch.setattr(jax, 'process_count', lambda: len(values))
    monkeypatch.setattr(agreement.multihost_utils, 'process_allgather', gather)
    threads = [
      threading.Thread(target=start, args=(k,)) for k in range(len(values))
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    return results

  return run


@pytest.mark.parametrize(
  'texts', [['host 0', '', 'd\u00e9faut '], ['', ''], ['a', 'a']]
)
def test_every_host_gets_the_texts_of_all(on_hosts, texts):
  assert on_hosts(agreement.gather_texts, texts) == [texts] * len(texts)


def test_every_host_learns_which_differs(on_hosts):
  assert on_hosts(agreement.check_same, [{'seed': 3}] * 3) == [None] * 3
  own = {'seed': 3, 'a.py': 'aa'}
  other = {'seed': 10, 'a.py': 'aa', 'new.py': 'cc'}
  for error in on_hosts(agreement.check_same, [own, own, other]):
    assert str(error).startswith(
      "host 2 has new.py='cc' (host 0 has None), "
      'host 2 has seed=10 (host 0 has 3). Start'
    )
