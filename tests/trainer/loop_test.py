"""Tests of the updates of a phase, and of held-out evaluation."""

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
from bert_jax.runtime import hang
from bert_jax.trainer import loop
from bert_jax.trainer.fit import fit
from bert_jax.trainer.task import HELD_OUT, Rows
from bert_jax.workdir import checkpoint, checkpoint_reader, integrity
from tests import training


def steps_of(workdir, kind):
  return [row['step'] for row in training.rows_of(workdir, kind)]


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

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(checkpoint.Checkpoints, 'save', look_while_saving)
    patch.setattr(hang, 'Timer', Timer)
    training.train(
      training.small_config(steps=(4, 2)),
      seen.folder,
      batch=make_batch,
      describe=lambda batch: seen.shown.append(len(batch['input_ids'])) or [],
    )
  return seen


def test_a_run_logs_evaluates_and_saves(watched):
  kinds = 'train', 'eval', 'checkpoint'
  steps = [steps_of(watched.folder, kind) for kind in kinds]
  assert steps == [[1, 2, 3, 4, 5, 6], [4, 6], [4, 6]]
  row = training.rows_of(watched.folder, 'train')[-1]
  assert (
    row['sequences_per_second'] > row['tokens_per_second'] / training.LENGTH
  )
  assert row['learning_rate'] == pytest.approx(1e-2 / 4)
  assert {'mlm_loss', 'mlm_accuracy', 'nsp_loss', 'nsp_accuracy'} <= set(row)
  assert watched.shown == [training.ROWS]  # the first batch, whole, once


def test_the_garbage_collector_skips_what_was_made_before_the_updates(watched):
  # Python 3.12 freezes some hundred immortal objects by itself.
  few, many = 1_000, 10_000
  assert watched.frozen[0] < few and max(watched.frozen) > many
  assert gc.get_freeze_count() < few


def test_each_step_of_work_arms_the_timer_and_saving_pauses_it(watched):
  # Two held-out batches after the fourth update and at the end.
  updates, batches = ['update'], ['batch', 'batch']
  assert watched.armed == [*4 * updates, *batches, *2 * updates, *batches]
  assert set(watched.while_saving) == {True}


def test_the_end_of_a_phase_is_evaluated_by_it_even_if_cut_off(tmp_path):
  c, seen = training.small_config(steps=(4, 2)), []

  def fail(phase, i, rows):
    raise OSError('the disk was pulled out')

  def eval_batch(phase, i, rows):
    seen.append(phase.number)
    return training.take(training.make_batch(1000 + i), rows)

  with pytest.raises(OSError, match='pulled out'):
    training.train(c, tmp_path, eval_batch=fail)
  training.train(c, tmp_path, eval_batch=eval_batch)
  assert seen == [0, 0, 1, 1]
  assert steps_of(tmp_path, 'eval') == [4, 6]


def test_a_change_of_length_is_said_and_evaluated_at_both(tmp_path, capsys):
  c = training.small_config((1, 2, 3), eval__every=2, checkpoint__every=3)
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
  assert evaluated == 2 * [[(2, 5), (3, 5), (3, 6), (4, 6), (6, 6)]]
  assert lines == 3 * [['phase 2: rows of 6 tokens, 3 steps']]
  assert any(x.startswith('held-out at step 3 in rows of 6 tok') for x in out)


def test_a_trained_model_is_evaluated_before_its_first_update(tmp_path):
  c = training.small_config(eval__every=0, checkpoint__every=9)
  training.train_until(c, tmp_path, 1, evaluate_first=True)
  assert not checkpoint_reader.list_steps(str(tmp_path / 'checkpoints'))
  training.train(c, tmp_path, evaluate_first=True)  # from the start
  assert steps_of(tmp_path, 'eval') == [0, 6]


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
  training.train_until(c, tmp_path, 2)
  assert steps_of(tmp_path, 'checkpoint') == [1, 2]


def make_judged(c):
  """Returns an objective whose predictions are a number of the model."""

  def make(how=None, phase=None):
    made = training.make_objective(c, how)

    def compute(params, batch, key):
      number = params['mlm']['bias'][3]
      rows = len(batch['input_ids'])
      return made.compute(params, batch, key)[0], jnp.full(rows, number)

    return dataclasses.replace(made, compute=compute, computed_as=make)

  return make()


def test_the_best_evaluation_is_the_result_whatever_happens(tmp_path):
  c = training.small_config(
    eval__every=2, checkpoint__every=5, checkpoint__keep=1
  )
  c.finetuning.select = 'best'
  objective = make_judged(c)

  def run(name, wanted, batch=training.make_batch):
    made = training.make_task(
      c,
      batch,
      objective=objective,
      collect=lambda kept, phase, i, found: float(found[0]),
      score=lambda kept: {'near': -abs(kept - wanted), 'number': kept},
    )
    made = dataclasses.replace(made, others={'test': made})
    with training.sharing():
      return fit(c, made, str(tmp_path / name))

  run('first', 0.0)
  rows = training.rows_of(tmp_path / 'first', 'eval')
  numbers = {row['step']: row['number'] for row in rows}
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


class Program:
  """Notes when it is called and when its results are read."""

  def __init__(self):
    self.events = []

  def __call__(self, params, batch):
    self.events.append(f'dispatch {batch}')
    events = self.events

    class Sum:
      def __array__(self, dtype=None, copy=None):
        events.append(f'read {batch}')
        return np.array(float(batch))

    return {'loss': (Sum(), 1.0)}, np.array([batch])


def evaluate(program, batches, names=('', '')):
  """Evaluates batches of parts of the data; keeps the predictions."""
  rows = Rows(
    eval_batch=None,
    eval_batches=None,
    name_eval_part=lambda phase, i: names[i],
    collect=lambda kept, phase, i, found: [*(kept or []), (i, found.tolist())],
  )
  return loop.evaluate(program, None, batches, None, rows)


def test_a_batch_is_computed_while_the_one_before_is_read():
  program = Program()
  totals, kept = evaluate(program, [3, 5])
  assert totals == {'loss': [8.0, 2.0]}
  assert program.events == ['dispatch 3', 'dispatch 5', 'read 3', 'read 5']
  assert kept == [(0, [3]), (1, [5])]
  assert evaluate(program, []) == ({}, None)


def test_metrics_of_a_part_of_the_data_are_added_up_alone_too():
  totals, _ = evaluate(Program(), [2, 3, 7, 8], ('', 'b', 'c', 'b'))
  assert totals == {'loss': [20, 4], 'loss/b': [11, 2], 'loss/c': [7, 1]}


@pytest.mark.parametrize(
  'loss, how, said',
  [
    (3.5, (3.091, False, 8), 'initial loss 3.500, expected 3.091'),
    (0.25, (3.091, True, 8), 'initial loss 0.250; guessing costs 3.091'),
    (9.0, (None, False, 8), 'initial loss 9.000'),
    # Logits of variance 4,096 x 0.02 x 0.02, of which the loss has half.
    (3.891, (3.091, False, 4096), 'initial loss 3.891, expected 3.091'),
  ],
)
def test_what_is_said_of_the_first_loss(loss, how, said):
  assert loop.check_first_loss(loss, *how) == said


@pytest.mark.parametrize(
  'loss, trained, size, tolerance',
  [
    (2.5, False, 8, 0.50),
    (3.7, False, 8, 0.50),
    (4.5, False, 4096, 1.32),
    (float('nan'), False, 8, 0.50),
    (float('nan'), True, 8, 0.50),
  ],
)
def test_a_loss_far_from_that_of_guessing_is_an_error(
  loss, trained, size, tolerance
):
  words = rf'guessing costs 3.091 \(\+-{tolerance:.2f}\); look at model.init'
  with pytest.raises(errors.UserError, match=words):
    loop.check_first_loss(loss, 3.091, trained, size)
