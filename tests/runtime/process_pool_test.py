"""Tests of how many processes a number asks for."""

import os
import time

import pytest

from bert_jax import config_check
from bert_jax.config import recipes
from bert_jax.data import prepare
from bert_jax.runtime import prefetch, process_pool


def get_pid(*_):
  return {'pid': os.getpid()}


def get_pid_slowly(*_):
  time.sleep(1)  # so that no process does all before another has started
  return get_pid()


@pytest.fixture
def two_cores(monkeypatch):
  monkeypatch.setattr(process_pool, 'count_cores', lambda: 2)
  monkeypatch.setattr(process_pool, '_QUOTA', '/absent')


def count_others(batches):
  """Returns how many processes but this one made batches."""
  return len({batch['pid'] for batch in batches} - {os.getpid()})


@pytest.mark.parametrize(
  ('count', 'others'),
  [
    (0, 0),
    pytest.param(-1, 2, marks=pytest.mark.slow),
    pytest.param(2, 2, marks=pytest.mark.slow),
  ],
)
def test_a_number_means_the_same_for_data_and_batches(two_cores, count, others):
  jobs = [(i,) for i in range(4)]
  make = get_pid_slowly if count else get_pid
  assert count_others(prepare.local_runner(count)(make, jobs)) == others
  assert count_others(prefetch.make_ahead(make, 0, 4, count)) == others


def test_by_default_all_cores_prepare_and_a_thread_makes_batches(two_cores):
  c = recipes.pretraining('base')
  config_check.check(c)
  assert process_pool.resolve(c.data.workers) == 2
  assert process_pool.resolve(c.data.loader_workers) == 0


@pytest.mark.parametrize(
  ('quota', 'found'), [('max 100000\n', 8), ('250000 100000\n', 3), ('', 8)]
)
def test_a_container_has_no_more_processes_than_its_share_of_cores(
  quota, found, tmp_path, monkeypatch
):
  monkeypatch.setattr(process_pool, 'count_cores', lambda: 8)
  monkeypatch.setattr(process_pool, '_QUOTA', str(tmp_path / 'cpu.max'))
  assert process_pool.resolve(process_pool.ONE_PER_CORE) == 8  # no such file
  (tmp_path / 'cpu.max').write_text(quota)
  assert process_pool.resolve(process_pool.ONE_PER_CORE) == found
