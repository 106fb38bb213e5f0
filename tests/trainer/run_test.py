"""Tests of saving, and of tracing updates."""

import contextlib
import glob
import warnings
from unittest import mock

import jax
import numpy as np
import pytest

from bert_jax.parallel import device_mesh
from bert_jax.runtime import signals
from bert_jax.trainer import run
from tests import training


class Meter:
  paused = staticmethod(contextlib.nullcontext)


def traced(workdir):
  """Returns the numbers of the steps in the one trace of a run."""
  (path,) = glob.glob(f'{workdir}/profile/plugins/profile/*/*.xplane.pb')
  with warnings.catch_warnings():
    # Raised as an error, this ends the process with jaxlib 0.12.
    warnings.filterwarnings('ignore', 'builtin type event_stats')
    return sorted(
      dict(event.stats)['step_num']
      for plane in jax.profiler.ProfileData.from_file(path).planes
      for line in plane.lines
      for event in line.events
      if event.name == 'step'
    )


def trace(workdir, updates, end, done=0):
  bar = training.Bar()
  with run.Profile(str(workdir), updates, done, Meter, bar) as profiled:
    for number in range(done + 1, end + 1):
      with profiled.update(number):
        pass
  return bar.lines


def test_the_log_is_in_a_bucket_before_a_checkpoint_is():
  made = mock.MagicMock()
  made.checkpoints.save = lambda step, state, announce: (
    announce('fingerprint'),
    made.saved(),
  )
  run.Run.save(made, 3, state=None)
  done = [
    name for name, *_ in made.mock_calls if 'log' in name or 'saved' in name
  ]
  assert done == ['report.log.write', 'report.log.flush', 'saved']


def test_the_first_of_equally_good_evaluations_is_the_best():
  made = mock.MagicMock()
  made.checkpoints.best = None
  for step, score in ((2, 0.5), (4, 0.75), (6, 0.75), (8, 0.25)):
    run.Run.save_best(made, step, None, score)
  assert made.checkpoints.best == (4, 0.75)
  assert [call.args[0] for call in made.save.mock_calls] == [2, 4]


@pytest.mark.slow
def test_a_profile_holds_its_steps_and_changes_no_parameter(tmp_path, capsys):
  c = training.small_config(steps=(8,))
  plain = training.train(c, tmp_path / 'plain')
  assert not (tmp_path / 'plain' / 'profile').exists()
  c.profile_steps = 2
  profiled = training.train(c, tmp_path / 'profiled')
  assert traced(tmp_path / 'profiled') == [6, 7]
  jax.tree.map(np.testing.assert_array_equal, plain, profiled)
  (line,) = [
    x for x in capsys.readouterr().out.splitlines() if 'profile of' in x
  ]
  directory = tmp_path / 'profiled' / 'profile'
  assert f'steps 6 to 7 in {directory};' in line
  assert f'xprof --logdir {directory}' in line


def test_a_run_that_ends_early_has_a_shorter_profile_or_none(tmp_path):
  assert trace(tmp_path, 4, 5) == ['no profile: it begins after 5 steps']
  assert not (tmp_path / 'profile').exists()
  (line,) = trace(tmp_path, 4, 12, done=5)
  assert traced(tmp_path) == [11, 12]
  assert 'profile of steps 11 to 12' in line


def test_an_error_among_traced_updates_ends_the_trace(tmp_path):
  with pytest.raises(OSError, match='pulled out'):
    with run.Profile(str(tmp_path), 4, 6, Meter, training.Bar()) as profiled:
      for number in (12, 13):
        with profiled.update(number):
          if number == 13:
            raise OSError('the disk was pulled out')
  assert traced(tmp_path) == [12, 13]


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
