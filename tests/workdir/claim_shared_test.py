"""Tests of the check that hosts share a working directory."""

import os

import pytest

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.workdir import claim


@pytest.fixture
def second(monkeypatch):
  """Lets this process take itself for one of two, the second if called."""
  monkeypatch.setattr(claim.jax, 'process_count', lambda: 2)
  monkeypatch.setattr(
    claim.multihost_utils, 'broadcast_one_to_all', lambda x: x
  )
  monkeypatch.setattr(distributed, 'find_largest', int)

  def become():
    monkeypatch.setattr(claim.jax, 'process_index', lambda: 1)
    monkeypatch.setattr(distributed, 'is_first', lambda: False)

  return become


def test_one_process_needs_no_shared_disk(tmp_path):
  claim.check_shared(str(tmp_path / 'absent'))
  assert os.listdir(tmp_path) == []


def test_the_check_leaves_nothing_behind(tmp_path, second):
  claim.check_shared(str(tmp_path / 'run'))
  assert os.listdir(tmp_path) == ['run'] and not os.listdir(tmp_path / 'run')


def test_a_host_that_does_not_see_it_is_named(tmp_path, second):
  second()
  with pytest.raises(errors.UserError, match='host 1 does not see'):
    claim.check_shared(str(tmp_path))


def test_what_another_run_left_is_not_mistaken(tmp_path, second):
  (tmp_path / '.shared').write_bytes(os.urandom(8))
  second()
  with pytest.raises(errors.UserError, match='host 1 does not see'):
    claim.check_shared(str(tmp_path))


def test_the_others_hear_of_a_directory_that_cannot_be_made(
  tmp_path, second, monkeypatch
):
  """Host 0 joins them before it raises."""
  (tmp_path / 'file').touch()
  heard = []
  monkeypatch.setattr(
    distributed, 'find_largest', lambda x: heard.append(x) or x
  )
  directory = str(tmp_path / 'file' / 'run')
  with pytest.raises(errors.UserError, match=r'host 0 .* \(Not a directory\)'):
    claim.check_shared(directory)
  assert heard == [True]
  second()
  monkeypatch.setattr(distributed, 'find_largest', lambda x: 1)
  with pytest.raises(errors.UserError, match='host 0 cannot write to'):
    claim.check_shared(directory)
