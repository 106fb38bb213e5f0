"""Tests of the check that hosts share a working directory."""

import os

import pytest

from bert_jax import errors
from bert_jax.parallel import agreement
from bert_jax.workdir import claim


@pytest.fixture
def told(monkeypatch):
  """Lets this process take itself for one of two; returns what hosts say."""
  found = ['[""]', '[""]']

  def gather(own):
    found[claim.jax.process_index()] = own
    return list(found)

  monkeypatch.setattr(claim.jax, 'process_count', lambda: 2)
  monkeypatch.setattr(
    claim.multihost_utils, 'broadcast_one_to_all', lambda x: x
  )
  monkeypatch.setattr(agreement, 'gather_texts', gather)
  return found


@pytest.fixture
def second(told, monkeypatch):
  """Lets this process take itself for the second."""
  monkeypatch.setattr(claim.jax, 'process_index', lambda: 1)


def test_the_check_leaves_nothing_behind(tmp_path, told):
  claim.check_shared(str(tmp_path / 'run'))
  assert os.listdir(tmp_path) == ['run'] and not os.listdir(tmp_path / 'run')


@pytest.mark.parametrize('left', [None, b'12345678'])  # by another run
def test_a_host_that_does_not_see_it_is_named(tmp_path, second, left):
  if left:
    (tmp_path / '.shared').write_bytes(left)
  with pytest.raises(errors.UserError, match='on host 1: .* does not have'):
    claim.check_shared(str(tmp_path))


def test_the_others_hear_of_a_directory_that_cannot_be_made(
  tmp_path, told, request
):
  (tmp_path / 'file').touch()
  directory = str(tmp_path / 'file' / 'run')
  said = f'on host 0: .*Not a directory: .{directory}'
  with pytest.raises(OSError, match=said):
    claim.check_shared(directory)
  request.getfixturevalue('second')
  with pytest.raises(OSError, match=said):
    claim.check_shared(directory)
