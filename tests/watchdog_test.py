"""Tests of how processes see one another."""

import contextlib

import pytest

from bert_jax import watchdog


def two(directory):
  hosts = [watchdog._Hosts(str(directory), k, 2) for k in range(2)]
  for one in hosts:
    one.beat()
  return hosts


def test_a_host_that_beats_is_not_missing(tmp_path):
  first, second = two(tmp_path)
  for _ in range(3 * watchdog._MISSES):
    second.beat()
    assert first.missing() is None


def test_a_silent_host_is_named(tmp_path):
  first, _ = two(tmp_path)
  looks = [first.missing() for _ in range(1 + watchdog._MISSES)]
  assert looks[:-1] == [None] * watchdog._MISSES
  assert looks[-1].startswith('host 1 (')
  assert 'gave no sign of life for 16 s' in looks[-1]


def test_a_host_that_wakes_up_is_not_missing(tmp_path):
  first, second = two(tmp_path)
  for _ in range(watchdog._MISSES):
    first.missing()
  second.beat()
  assert first.missing() is None


def test_the_ring_closes(tmp_path):
  _, second = two(tmp_path)
  looks = [second.missing() for _ in range(1 + watchdog._MISSES)]
  assert looks[-1].startswith('host 0 (')


def test_all_learn_of_the_first_failure(tmp_path):
  first, second = two(tmp_path)
  assert first.failed() is None
  assert second.fail('host 1: the disk is full')
  assert not first.fail('host 0: lost host 1')
  assert first.failed() == second.failed() == 'host 1: the disk is full'


def test_stacks_show_what_every_host_does(tmp_path):
  first, _ = two(tmp_path)
  found = first.stacks()
  assert found.count('test_stacks_show_what_every_host_does') == 2
  assert '--- host 0 (' in found and '--- host 1 (' in found


def test_one_process_writes_nothing(tmp_path):
  with watchdog.together(str(tmp_path)):
    pass
  with contextlib.suppress(KeyError):
    with watchdog.together(str(tmp_path)):
      raise KeyError
    pytest.fail('the error was swallowed')
  assert list(tmp_path.iterdir()) == []
