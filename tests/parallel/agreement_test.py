"""Tests of what must be the same on all hosts."""

import threading

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import agreement


def test_code_names_every_module():
  found = agreement.hash_code()
  assert {'bert_jax', 'jax', 'train/loop.py', 'pretraining/batches.py'} <= set(
    found
  )


@pytest.mark.parametrize(
  'versions, said',
  [
    ({'jax': '0.9.0'}, None),
    ({'jax': '0.12.7.1', 'libtpu': '0.0.50.9'}, None),
    (
      {'jax': '0.13.0', 'libtpu': '0.0.50'},
      'not tested with jax 0.13.0 (only up to 0.12)',
    ),
    ({'jax': '0.12.0', 'libtpu': '0.0.51rc1'}, 'libtpu 0.0.51rc1 (only up to'),
    ({'jax': '1.0.0', 'libtpu': '0.1'}, 'up to 0.12), libtpu 0.1 (only'),
  ],
)
def test_versions_newer_than_the_tested_ones_are_named(
  monkeypatch, versions, said
):
  monkeypatch.setattr(agreement, 'get_versions', lambda: versions)
  found = agreement.describe_untested()
  assert found is None if said is None else said in found


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
