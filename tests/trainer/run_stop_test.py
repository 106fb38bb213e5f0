"""Tests of the votes by which hosts stop and save together."""

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


@pytest.mark.parametrize(
  'due, saved',
  [
    # The vote of the second call is answered by the third; there is no second.
    ([0, 1, 1, 0, 0], [0, 0, 1, 0, 0]),
    # Who could not save votes again.
    ([1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1]),
  ],
)
def test_a_checkpoint_is_saved_once_the_votes_are_counted(voting, due, saved):
  asking, _ = voting
  mesh, found = device_mesh.make_mesh(), []
  for wanted in due:
    asking.ask_ahead(mesh, bool(wanted))
    found.append(asking.save)
  assert found == saved


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
