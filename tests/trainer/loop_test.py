"""Tests of the updates of a phase."""

import dataclasses
import gc
import os
import shutil
import signal
import types

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.pretraining import pretrain
from bert_jax.runtime import hang
from bert_jax.trainer.fit import fit
from bert_jax.trainer.task import HELD_OUT
from bert_jax.workdir import checkpoint, checkpoint_reader, integrity
from tests import training


@pytest.fixture(scope='module')
def watched(tmp_path_factory):
  """A run of two phases, and what was seen while it trained."""
  seen = types.SimpleNamespace(
    folder=tmp_path_factory.mktemp('run'),
    armed=[],
    timer=None,
    frozen=[],
    shown=[],
    while_saving=[],
    while_evaluating=[],
  )
  save = checkpoint.Checkpoints.save

  class Timer(hang.Timer):
    def __init__(self):
      super().__init__()
      seen.timer = self

    def arm(self, update=False):
      seen.armed.append('update' if update else 'batch')
      super().arm(update)

  def look_while_saving(self, *args):
    seen.while_saving.append(seen.timer._is_paused)
    return save(self, *args)

  def make_batch(step):
    seen.frozen.append(gc.get_freeze_count())
    return training.make_batch(step)

  def derive(means):
    seen.while_evaluating.append(seen.timer._is_paused)
    return pretrain.derive(means)

  c = training.small_config(steps=(4, 2))
  made = training.make_task(
    c,
    make_batch,
    derive=derive,
    describe=lambda batch: seen.shown.append(len(batch['input_ids'])) or [],
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(checkpoint.Checkpoints, 'save', look_while_saving)
    patch.setattr(hang, 'Timer', Timer)
    fit(c, made, str(seen.folder))
  return seen


def test_a_run_logs_evaluates_and_saves(watched):
  rows = {
    kind: training.rows_of(watched.folder, kind)
    for kind in ('train', 'eval', 'checkpoint')
  }
  assert {
    kind: [row['step'] for row in found] for kind, found in rows.items()
  } == {
    'train': [1, 2, 3, 4, 5, 6],
    'eval': [4, 6],
    'checkpoint': [4, 6],
  }
  row = rows['train'][-1]
  assert (
    row['sequences_per_second'] > row['tokens_per_second'] / training.LENGTH
  )
  assert row['learning_rate'] == pytest.approx(1e-2 / 4)
  assert {'mlm_loss', 'mlm_accuracy', 'nsp_loss', 'nsp_accuracy'} <= set(row)


def test_the_first_batch_is_shown_whole_once(watched):
  assert watched.shown == [training.ROWS]


def test_the_garbage_collector_skips_what_was_made_before_the_updates(watched):
  # Python 3.12 freezes some hundred immortal objects by itself.
  few, many = 1_000, 10_000
  assert watched.frozen[0] < few and max(watched.frozen) > many
  assert gc.get_freeze_count() < few


def test_each_step_of_work_arms_the_timer_and_saving_pauses_it(watched):
  # Two held-out batches after the fourth update and at the end.
  updates, batches = ['update'], ['batch', 'batch']
  assert watched.armed == [*4 * updates, *batches, *2 * updates, *batches]
  assert set(watched.while_evaluating) == {False}
  assert set(watched.while_saving) == {True}


def test_nothing_is_compiled_between_the_updates(tmp_path, monkeypatch):
  counts = []

  def look(own, whole):
    counts.append(len(compiled))
    return int(own.sum())

  monkeypatch.setattr(distributed, 'sum_global', look)
  c = training.small_config((4, 2), eval__every=2, checkpoint__every=60)
  with training.noting_compilations() as compiled:
    training.train(c, tmp_path)
  assert counts[0] > 0 and counts == 6 * counts[:1]


def test_the_end_of_a_phase_is_evaluated_by_it_even_if_cut_off(tmp_path):
  c = training.small_config(steps=(2, 4), eval__every=2, checkpoint__every=2)
  seen = []

  def fail(phase, i, rows):
    raise OSError('the disk was pulled out')

  def eval_batch(phase, i, rows):
    seen.append(phase.number)
    return training.take(training.make_batch(1000 + i), rows)

  with pytest.raises(OSError, match='pulled out'):
    training.train(c, tmp_path, eval_batch=fail)
  training.train(c, tmp_path, eval_batch=eval_batch)
  assert seen == [0, 0, 1, 1, 1, 1]
  steps = [row['step'] for row in training.rows_of(tmp_path, 'eval')]
  assert steps == [2, 4, 6]


def test_a_change_of_length_is_said_and_evaluated_at_both(tmp_path, capsys):
  c = training.small_config((1, 2, 2), eval__every=2, checkpoint__every=3)
  c.phases.seq_length = (5, 5, training.LENGTH)
  lines, evaluated = [], []
  for name, until in ('whole', None), ('cut off', 3), ('cut off', None):
    if until:
      training.train_until(c, tmp_path / name, until)
    else:
      training.train(c, tmp_path / name)
      rows = training.rows_of(tmp_path / name, 'eval')
      evaluated.append([(row['step'], row['seq_length']) for row in rows])
    out = capsys.readouterr().out.splitlines()
    lines.append([x for x in out if x.startswith('phase ')])
  assert evaluated == 2 * [[(2, 5), (3, 5), (3, 6), (4, 6), (5, 6)]]
  assert lines == 3 * [['phase 2: rows of 6 tokens, 2 steps']]
  assert any(x.startswith('held-out at step 3 in rows of 6 tok') for x in out)


def test_a_trained_model_is_evaluated_before_its_first_update(tmp_path):
  c = training.small_config(steps=(3,), eval__every=0, checkpoint__every=9)
  training.train_until(c, tmp_path, 1, evaluate_first=True)
  assert not checkpoint_reader.list_steps(str(tmp_path / 'checkpoints'))
  training.train(c, tmp_path, evaluate_first=True)  # from the start
  steps = [row['step'] for row in training.rows_of(tmp_path, 'eval')]
  assert steps == [0, 3]


def test_a_signal_during_an_evaluation_does_not_wait_for_its_end(tmp_path):
  seen = []

  def eval_batch(phase, i, rows):
    seen.append(i)
    if i == 0:
      os.kill(os.getpid(), signal.SIGTERM)
    return training.take(training.make_batch(i), rows)

  c = training.small_config(eval__every=2)
  changes = {'eval_batch': eval_batch, 'eval_batches': lambda phase: 99}
  with pytest.raises(errors.Interrupted):
    training.train(c, tmp_path, **changes)
  assert len(seen) < 50
  assert checkpoint_reader.list_steps(str(tmp_path / 'checkpoints')) == [2]


def test_the_work_until_the_plateau_was_left_survives_a_resumption(
  tmp_path, capsys
):
  c = training.small_config(eval__every=2, checkpoint__every=5)
  # The held-out loss at step 4 is the first below it.
  training.train(c, tmp_path / 'first')
  losses = [x['mlm_loss'] for x in training.rows_of(tmp_path / 'first', 'eval')]
  capsys.readouterr()
  plateau = {'plateau': losses[0]}
  training.train_until(c, tmp_path, step=5, **plateau)
  training.train(c, tmp_path, **plateau)
  rows = training.rows_of(tmp_path, 'eval')
  each = training.ROWS * training.LENGTH
  assert losses[1] < losses[0]
  assert [(row['step'], row['tokens'], row['flops']) for row in rows] == [
    (step, step * each, step * 1e6) for step in (2, 4, 6)
  ]
  assert 'plateau_exit_tokens' not in rows[0]
  for row in rows[1:]:
    exit = row['plateau_exit_tokens'], row['plateau_exit_flops']
    assert exit == (4 * each, 4e6)
  out = capsys.readouterr().out
  assert 'plateau exit at step 4: 192 tokens, 4e+06 FLOPs' in out
  assert out.count('plateau exit') == 1


def test_a_checkpoint_is_saved_when_the_last_one_is_minutes_old(tmp_path):
  c = training.small_config(checkpoint__every=60, checkpoint__minutes=1e-9)
  training.train(c, tmp_path)
  rows = training.rows_of(tmp_path, 'checkpoint')
  assert [r['step'] for r in rows] == [1, 2, 3, 4, 5, 6]


def make_judged_task(c, wanted, **changes):
  """Returns a task whose score is best where a number of the model is `wanted`."""

  def make_objective(how=None):
    made = training.make_objective(c, how)

    def compute(params, batch, key):
      number = params['mlm']['bias'][3]
      rows = len(batch['input_ids'])
      return made.compute(params, batch, key)[0], jnp.full(rows, number)

    return dataclasses.replace(
      made, compute=compute, computed_as=make_objective
    )

  made = training.make_task(
    c,
    objective=make_objective(),
    collect=lambda kept, phase, i, found: float(found[0]),
    score=lambda kept: {'near': -abs(kept - wanted), 'number': kept},
    **changes,
  )
  return dataclasses.replace(made, others={'test': made})


def test_the_best_evaluation_is_the_result_whatever_happens(tmp_path):
  c = training.small_config(
    eval__every=2, checkpoint__every=5, checkpoint__keep=1
  )
  c.finetuning.select = 'best'

  def run(name, wanted, batch=training.make_batch):
    made = make_judged_task(c, wanted, batch=batch)
    return fit(c, made, str(tmp_path / name))

  run('first', 0.0)
  numbers = {
    row['step']: row['number']
    for row in training.rows_of(tmp_path / 'first', 'eval')
  }
  # After the checkpoint of step 5, which knows of step 4.
  with pytest.raises(OSError, match='pulled out'):
    run('killed', numbers[4], training.fail_at(5))
  folder = tmp_path / 'killed' / 'checkpoints'
  assert checkpoint_reader.list_steps(str(folder)) == [4, 5]
  for _ in range(2):  # at its end, too
    params, kept, step = run('killed', numbers[4])
    assert step == 4 and kept == {HELD_OUT: numbers[4], 'test': numbers[4]}
    assert params['mlm']['bias'][3] == np.float32(numbers[4])
    assert checkpoint_reader.list_steps(str(folder)) == [4, 6]
  shutil.rmtree(folder / '4' / 'state' / 'd')
  with pytest.raises(integrity.Damaged):
    run('killed', numbers[4])
