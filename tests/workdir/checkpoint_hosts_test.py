"""All hosts judge a checkpoint alike."""

import json
import os

import pytest

from bert_jax import errors
from bert_jax.parallel import agreement
from tests import processes
from tests.workdir.checkpoints import damage, restore, write


def test_a_host_whose_disk_fails_keeps_all_from_condemning(
  tmp_path, monkeypatch
):
  write(tmp_path / 'c')
  damage(tmp_path / 'c', 3)
  votes = []

  def gather(own):
    votes.append(own)
    # What is damaged here another host cannot read.
    other = {'damaged': False, 'message': 'EIO in c/3', 'may_pass': True}
    return [own, json.dumps(other if own != '{}' else {})]

  monkeypatch.setattr(agreement, 'gather_texts', gather)
  with pytest.raises(errors.UserError, match='^on host 1: EIO') as caught:
    restore(tmp_path / 'c')
  assert errors.get_exit_code(caught.value) == 75
  # On the files, the facts, the arrays, their shapes.
  assert votes[:2] == votes[3:] * 2 == ['{}'] * 2
  assert json.loads(votes[2])['damaged'] and os.listdir(tmp_path) == ['c']


def test_damage_that_another_host_alone_sees_is_named_here(
  tmp_path, monkeypatch, capsys
):
  write(tmp_path / 'c')
  other = {'damaged': True, 'message': 'a shard is cut', 'may_pass': False}
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
