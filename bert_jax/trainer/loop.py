"""The training loop of one phase: updates, evaluation, logging, saving."""

import contextlib
import dataclasses
import functools
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from bert_jax import errors
from bert_jax.parallel import device_mesh, distributed
from bert_jax.runtime import progress, workers
from bert_jax.trainer import meter, programs
from bert_jax.trainer.run import Run
from bert_jax.trainer.step import BLOCK, TrainState
from bert_jax.trainer.task import HELD_OUT, Phase, Rows, count_work

_TOLERANCE = 0.5  # nats
_STD = 0.02  # of new weights: `model.initializer_std` by default


def run_phase(
  run: Run, phase: Phase, state: TrainState, compiled: dict
) -> tuple[TrainState, dict[str, Any]]:
  """Trains to the end of a phase, evaluating, logging and saving.

  If it was interrupted, its remaining steps are trained, or only the evaluation
  at its end is run. After a signal, the state is saved and errors.Interrupted
  raised.

  Args:
    state: state to continue from; donated.
    compiled: {length: {name: executable}} of the phase's programs.

  Returns:
    (state, predictions): after the last phase, `predictions` holds what the
    task kept of the trained model's, for `task.HELD_OUT` and its other rows.
  """
  first, end = int(state.step), phase.first + phase.steps
  plan, report, objective = run.plan, run.report, run.task.objective
  update = _by_length(compiled, programs.TRAIN)
  evaluation = _by_length(compiled, programs.EVALUATE)
  report.status.note(state='running', step=first, phase=phase.number)
  if first == 0:
    _check_first_batch(run, phase, state, evaluation)
    if run.task.evaluate_first:
      _evaluate(run, phase, 0, state, evaluation)
  # One without steps is evaluated only at its end.
  another = plan.changes_length(phase.number)
  if phase.steps and first == phase.first and another:
    length, steps = phase.seq_length, phase.steps
    report.bar.write(
      f'phase {phase.number}: rows of {length} tokens, {steps:,} steps'
    )
    if plan.eval_every:
      _evaluate(run, phase, first, state, evaluation)
  run.stop_if_asked(first, state)
  flops = {
    length: objective.flops(dataclasses.replace(phase, seq_length=length))
    for length in compiled
  }
  report.meter.begin_phase()
  own = device_mesh.find_own_rows(run.mesh, phase.batch_size)
  make = functools.partial(run.task.train_batch, phase, rows=own)
  batches = workers.make_ahead(make, first, end)
  with contextlib.closing(batches), _frozen_heap():
    for step in range(first, end):
      run.stop_if_asked(step, state, ask=False)
      # A phase's first step was evaluated by the phase before, at its length.
      due = plan.eval_every and step % plan.eval_every == 0
      if due and step > phase.first:
        _evaluate(run, phase, step, state, evaluation)
      with report.profile.update(step + 1):
        state = _update(run, step + 1, batches, flops, update, state)
      if (step + 1) % plan.save_every == 0 or run.stop.save:
        report.meter.flush()
        # During skipped updates, saving would delete an earlier checkpoint.
        if not report.meter.skipped_in_a_row:
          run.save(step + 1, state)
    predictions = {}
    another_next = plan.changes_length(phase.number + 1)
    if end == plan.steps:
      state, predictions = _end_run(run, phase, end, state, evaluation)
    elif plan.eval_every and (end % plan.eval_every == 0 or another_next):
      _evaluate(run, phase, end, state, evaluation)
    run.stop_if_asked(end, state)
  return state, predictions


def _end_run(run, phase, end, state, evaluation):
  # First, since the evaluation raises if its loss is not finite.
  run.save(end, state)
  kept = _evaluate(run, phase, end, state, evaluation)
  if run.checkpoints.best and run.checkpoints.best[0] != end:
    state, kept = _take_best(run, phase, end, state, evaluation)
  predictions = {HELD_OUT: kept}
  for name, rows in run.task.others.items():
    label, count = f'predicting {name}', rows.eval_batches(phase)
    with progress.Progress(count, 'batches', label, leave=False) as bar:
      _, predictions[name] = _predict(
        run, phase, end, state, evaluation, rows, bar
      )
  return state, predictions


def _by_length(compiled, name):
  """Returns a function that calls the program for its batch's length."""

  def call(state, batch, *others):
    return _choose(compiled, batch)[name](state, batch, *others)

  return call


def _choose(by_length, batch):
  """Returns the value for a batch's length, or the longest's, which complains."""
  length = batch['input_mask'].shape[-1]
  return by_length.get(length, by_length[max(by_length)])


@contextlib.contextmanager
def _frozen_heap():
  """Excludes existing objects, such as the compiler's, from collection.

  Otherwise Python's garbage collector occasionally scans them all, and each
  time the devices of all hosts wait.
  """
  gc.freeze()
  try:
    yield
  finally:
    gc.unfreeze()


def _check_first_batch(run, phase, state, evaluation):
  task, bar, objective = run.task, run.report.bar, run.task.objective
  with run.report.meter.paused():
    own = device_mesh.find_own_rows(run.mesh, phase.eval_batch_size)
    batch = task.train_batch(phase, 0, own)
    evaluated = objective.evaluate_as(phase)
    shapes = objective.batch_shapes(evaluated, phase.eval_batch_size)
    # Held-out batches may have fewer predictions.
    cut = {k: x[tuple(map(slice, shapes[k].shape))] for k, x in batch.items()}
    sums, _ = evaluation(state.params, device_mesh.put_batch(run.mesh, cut))
    if distributed.is_first():
      whole = task.train_batch(phase, 0, np.arange(phase.batch_size))
      for line in task.describe(whole):
        bar.write(line)
    losses = objective.losses
    means = meter.compute_means(jax.device_get(sums), losses, task.derive)
    about = objective.expected_loss, bool(task.start)
    bar.write(
      check_first_loss(means['loss'], *about, objective.bert.hidden_size)
    )


def check_first_loss(
  loss: float, expected: float | None, trained: bool, hidden_size: int
) -> str:
  """Compares the loss before any update with a guess's; returns a line on it.

  Any loss is accepted if that of a guess is unknown, None, or if the model starts
  from trained weights. A wide model's guesses are less even.
  """
  said = f'initial loss {loss:.3f}'
  if expected is None:
    return said
  if trained and math.isfinite(loss):
    return f'{said}; guessing costs {expected:.3f}'
  # The tied decoder's logits have the variance D std^2, half of which is added.
  tolerance = _TOLERANCE + hidden_size * _STD**2 / 2
  if not abs(loss - expected) <= tolerance:
    raise errors.UserError(
      f'the initial loss is {loss:.3f}, but guessing costs {expected:.3f} '
      f'(+-{tolerance:.2f}); look at model.initializer_std.'
    )
  return f'{said}, expected {expected:.3f}'


def _update(run, number, batches, flops, update, state):
  """Dispatches an update, reads the previous one; returns the state."""
  start = time.monotonic()
  batch = next(batches)
  run.stop.timer.arm(update=True)
  rates = run.plan.rates((number - 1) // BLOCK)
  costs = {'flops': _choose(flops, batch), 'waited': time.monotonic() - start}
  with jax.transfer_guard('disallow'):
    arrays = device_mesh.put_batch(run.mesh, batch)
    costs['sequences'] = len(arrays['input_mask'])
    costs['tokens'] = distributed.sum_global(
      batch['input_mask'], arrays['input_mask']
    )
    state, metrics = update(state, arrays, run.plan.key, rates)
    run.ask_ahead()
    run.report.meter.add(number, metrics, costs)
  run.report.status.note(step=number)
  return state


def _evaluate(run, phase, step, state, evaluation):
  """Evaluates on the held-out data and logs; returns what the task kept."""
  start, task, report = time.monotonic(), run.task, run.report
  with report.meter.paused():
    totals, kept = _predict(run, phase, step, state, evaluation, task)
    losses = task.objective.losses
    means = meter.compute_means(totals, losses, task.derive)
    if not math.isfinite(means['loss']):
      raise errors.UserError(
        f'the held-out loss at step {step:,} is {means["loss"]}: the model '
        'computes numbers that are not finite. Look at the held-out data, or '
        'use another --workdir with a lower optimizer.learning_rate.'
      )
    scores = task.score(kept)
    means |= scores
    seconds = time.monotonic() - start
    row = {**means, **_count_work(run, step, means), 'seconds': seconds}
    where = ''
    if len({x.seq_length for x in run.plan.phases}) > 1:
      row['seq_length'] = phase.seq_length
      where = f' in rows of {phase.seq_length} tokens'
    report.log.write('eval', step, row)
    report.status.note(held_out=means)
    report.bar.write(
      f'held-out at step {step:,}{where} ({seconds:.1f} s): {task.word(means)}'
    )
  if run.plan.keep_best:
    run.save_best(step, state, next(iter(scores.values())))
  return kept


def _count_work(run, step, means) -> dict[str, float]:
  """Returns the work so far, and the work until the plateau was left."""
  objective, report = run.task.objective, run.report
  work = count_work(objective, run.plan.phases, step)
  left = {f'plateau_exit_{kind}': value for kind, value in work.items()}
  before, bound = report.log.evaluation, run.task.plateau
  if left.keys() <= before.keys():
    return work | {name: before[name] for name in left}
  if bound is None or means[objective.losses[0]] >= bound:
    return work
  report.bar.write(
    f'plateau exit at step {step:,}: {work["tokens"]:,} tokens, '
    f'{work["flops"]:.3g} FLOPs'
  )
  return work | left


def _take_best(run, phase, end, state, evaluation):
  step, score = run.checkpoints.best
  run.report.bar.write(
    f'the result is the model of step {step:,}, the best on held-out data '
    f'({score:.4f})'
  )
  template = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
  )
  with run.report.meter.paused(), run.stop.timer.paused():
    state = run.checkpoints.restore_best(template)
  _, kept = _predict(run, phase, end, state, evaluation, run.task)
  return state, kept


def _predict(run, phase, step, state, evaluation, rows, bar=None):
  with contextlib.closing(
    _held_out(run, phase, step, state, rows, bar)
  ) as batches:
    return evaluate(evaluation, state.params, batches, phase, rows)


def _held_out(run, phase, step, state, rows, bar):
  """Yields the batches of rows on the devices; a signal stops the run."""
  own = device_mesh.find_own_rows(run.mesh, phase.eval_batch_size)
  make = functools.partial(rows.eval_batch, phase, rows=own)
  made = workers.make_ahead(make, 0, rows.eval_batches(phase))
  with contextlib.closing(made):
    for batch in made:
      run.stop_if_asked(step, state)
      run.stop.timer.arm()
      if bar:
        bar.update(1)
      yield device_mesh.put_batch(run.mesh, batch)


def evaluate(
  program: Callable, params: Any, batches: Iterable, phase: Phase, rows: Rows
) -> tuple[dict, Any]:
  """Evaluates a model on batches, by a program as `step.eval_step`.

  Returns ({metric: [sum, count]}, what `rows` kept of the predictions).
  """
  totals: dict[str, list[float]] = {}
  kept, results = None, (program(params, batch) for batch in batches)
  # Each is read when the next has been dispatched.
  ahead = itertools.pairwise(itertools.chain(results, [None]))
  for i, (result, _) in enumerate(ahead):
    sums, predictions = jax.device_get(result)
    meter.add(totals, sums)
    if part := rows.name_eval_part(phase, i):
      meter.add(totals, {f'{name}/{part}': sums[name] for name in sums})
    kept = rows.collect(kept, phase, i, predictions)
  return totals, kept
