"""All hosts judge a checkpoint alike."""

import json
import os

import pytest

from bert_jax import errors
from bert_jax.parallel import agreement
from tests import processes
from tests.workdir.checkpoints import damage, restore, write

_SOUND = json.dumps(['None'])


def test_a_host_whose_disk_fails_keeps_all_from_condemning(
  tmp_path, monkeypatch
):
  write(tmp_path / 'c')
  damage(tmp_path / 'c', 3)
  votes = []

  def gather(own):
    votes.append(own)
    # What is damaged here another host cannot read.
    other = [0, 'EIO in c/3']
    return [own, own if own == _SOUND else json.dumps(other)]

  monkeypatch.setattr(agreement, 'gather_texts', gather)
  with pytest.raises(OSError, match='^on host 1: EIO'):
    restore(tmp_path / 'c')
  # On the files, the facts, the arrays, their shapes.
  assert votes[:2] == votes[3:] * 2 == [_SOUND] * 2
  assert json.loads(votes[2])[0] == 2 and os.listdir(tmp_path) == ['c']


def test_damage_that_another_host_alone_sees_is_named_here(
  tmp_path, monkeypatch, capsys
):
  write(tmp_path / 'c')
  other = [2, 'a shard is cut']
  monkeypatch.setattr(
    agreement, 'gather_texts', lambda own: [own, json.dumps(other)]
  )
  with pytest.raises(errors.UserError, match='1: on host 1: a shard is cut'):
    restore(tmp_path / 'c')
  assert 'checkpoint 3 is bad: on host 1: a shard' in capsys.readouterr().out
  assert os.listdir(tmp_path) == ['c']


@pytest.mark.slow
def test_damage_that_one_of_two_hosts_sees_is_set_aside_by_both(tmp_path):
  said = processes.run_pair('tests.restoring_host', tmp_path / 'c')
  assert all('restored 1\n' in stderr for _, stderr in said), said
  assert os.listdir(tmp_path / 'c_bad') == ['2']
