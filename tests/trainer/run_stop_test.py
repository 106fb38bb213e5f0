"""Tests of the votes by which hosts stop and save together."""

from unittest import mock

import jax
import pytest

from bert_jax.parallel import device_mesh
from bert_jax.runtime import signals
from bert_jax.trainer import run


@pytest.fixture
def voting(monkeypatch):
  """Returns (a Stop, what it was told by signals), of the only one of 2 hosts."""
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  own = signals.Stop()
  return run.Stop(own), own


def test_a_checkpoint_is_saved_once_the_votes_are_counted(voting):
  asking, _ = voting
  mesh, saved = device_mesh.make_mesh(), []
  for due in (False, True, False, False):
    asking.ask_ahead(mesh, due)
    saved.append(asking.save)
  assert saved == [False, False, True, False]


def test_minutes_that_have_gone_are_voted_on_once(voting, monkeypatch):
  asking, _ = voting
  made, now = mock.MagicMock(stop=asking, mesh=device_mesh.make_mesh()), [100.0]
  made.plan.save_minutes, made.checkpoints.saved = 1, 0.0
  monkeypatch.setattr(run.time, 'monotonic', lambda: now[0])
  saved = []
  for now[0] in (100.0, 101.0, 102.0, 161.0, 162.0):
    run.Run.ask_ahead(made)
    saved.append(asking.save)
  assert saved == [False, True, False, False, True]


def test_a_signal_is_not_lost_beside_a_vote_to_save(voting):
  asking, own = voting
  mesh = device_mesh.make_mesh()
  own.signum = 15
  asking.ask_ahead(mesh, True)
  assert asking.signum is None
  asking.ask_ahead(mesh, False)
  assert asking.signum == 15 and asking.save


def test_a_single_process_decides_at_once():
  asking = run.Stop(signals.Stop())
  asking.ask_ahead(device_mesh.make_mesh(), True)
  assert asking.save
