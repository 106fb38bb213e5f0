"""Tests of the updates of a phase."""

import dataclasses
import gc

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.pretraining import pretrain
from bert_jax.runtime import pulse
from bert_jax.train import step as step_lib
from bert_jax.workdir import checkpoint, checkpoint_reader
from tests import training


@pytest.mark.slow
def test_twenty_non_finite_updates_in_a_row_stop_the_run(tmp_path):
  def broken(step):
    batch = training.make_batch(step)
    if step >= 5:
      batch['masked_lm_weights'][:] = np.nan
    return batch

  c = training.small_config(steps=(60,), checkpoint__every=4, eval__every=0)
  with pytest.raises(errors.UserError, match='20 updates in a row.*step 25'):
    training.fit(c, tmp_path, batch=broken)
  skipped = [r['step'] for r in training.rows_of(tmp_path, 'skipped')]
  assert skipped == list(range(6, 26))


@pytest.mark.slow
def test_the_step_is_compiled_once_per_phase(tmp_path, monkeypatch):
  traces = []
  original = step_lib.train_step

  def counting(*args, **kwargs):
    traces.append(1)
    return original(*args, **kwargs)

  monkeypatch.setattr(step_lib, 'train_step', counting)
  training.fit(training.small_config(steps=(3, 3)), tmp_path)
  assert len(traces) == 2


def test_a_batch_of_another_shape_is_refused_not_compiled(tmp_path):
  def longer(step):
    return training.make_batch(step, 12 if step == 3 else 8)

  c = training.small_config()
  made = dataclasses.replace(
    training.make_task(c), train_batch=lambda phase, step, rows: longer(step)
  )
  with pytest.raises(TypeError, match='called with.*12'):
    training.fit_lib.fit(c, made, str(tmp_path))


def test_what_is_compiled_after_the_first_update_is_said_loudly(
  tmp_path, monkeypatch, capsys
):
  steps = []

  def compiling(own, whole):
    steps.append(len(steps) + 1)
    if steps[-1] in (1, 4):
      jax.jit(lambda x: x + steps[-1])(whole)
    return int(own.sum())

  monkeypatch.setattr(distributed, 'sum_global', compiling)
  training.fit(training.small_config(), tmp_path)
  (row,) = training.rows_of(tmp_path, 'compiled')
  assert (row['step'], row['programs']) == (4, 1)
  out = capsys.readouterr().out
  assert out.count('WARNING: step 4 compiled 1 program(s)') == 1
  assert out.count('WARNING') == 1


@pytest.mark.slow
def test_the_garbage_collector_skips_what_was_made_before_the_updates(tmp_path):
  frozen = []

  def looking(step):
    frozen.append(gc.get_freeze_count())
    return training.make_batch(step)

  training.fit(training.small_config(), tmp_path, batch=looking)
  assert frozen[0] == 0 and min(frozen[-4:]) > 10_000
  assert gc.get_freeze_count() == 0


def test_the_pulse_counts_what_is_done_and_rests_while_saving(
  tmp_path, monkeypatch
):
  beat, saving, training_now = pulse.Pulse(), [], []
  save = checkpoint.Checkpoints.save

  def looking(self, *args):
    saving.append(beat.watched)
    return save(self, *args)

  def derive(means):
    training_now.append(beat.watched)
    return pretrain.derive(means)

  monkeypatch.setattr(checkpoint.Checkpoints, 'save', looking)
  c = training.small_config()
  made = dataclasses.replace(training.make_task(c), derive=derive)
  training.fit_lib.fit(c, made, str(tmp_path), pulse=beat)
  # Six updates; two held-out batches after the fourth and at the end.
  assert (beat.updates, beat.evaluated) == (6, 4)
  assert set(training_now) == {True} and set(saving) == {False}
  assert not beat.watched


def test_a_held_out_loss_that_is_not_finite_stops_a_run_that_is_saved(tmp_path):
  def broken(phase, i, rows):
    batch = training.take(training.make_batch(i), rows)
    batch['masked_lm_weights'][:] = np.nan
    return batch

  c = training.small_config(checkpoint__every=60, eval__every=0)
  made = dataclasses.replace(
    training.make_task(c),
    eval_batch=broken,
    score=lambda kept: pytest.fail('there is nothing to score'),
  )
  for _ in range(2):  # the same command says the same
    with pytest.raises(errors.UserError, match='loss at step 6 is nan'):
      training.fit_lib.fit(c, made, str(tmp_path))
    assert checkpoint_reader.list_steps(str(tmp_path / 'checkpoints')) == [6]
