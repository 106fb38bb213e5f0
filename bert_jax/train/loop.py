"""The training loop of one phase: updates, evaluation, logging, saving."""

import contextlib
import dataclasses
import functools
import gc
import math
import time
from typing import Any

import jax

from bert_jax import errors
from bert_jax.parallel import device_mesh, distributed
from bert_jax.parallel import stop as stop_lib
from bert_jax.runtime import prefetch, progress, pulse
from bert_jax.train import (
  compilation,
  evaluate,
  first_batch,
  meter,
  programs,
  saving,
  shortage,
  trace,
)
from bert_jax.train import step as step_lib
from bert_jax.train import task as task_lib
from bert_jax.workdir import checkpoint, log
from bert_jax.workdir import status as status_lib


@dataclasses.dataclass(frozen=True)
class Hosts:
  """What the hosts of a run share.

  Attributes:
    mesh: axes (data, model), see `device_mesh.make_mesh`.
    key: random key of the run, on the mesh.
    stop: when all stop, or save.
    pulse: shows that training goes on.
  """

  mesh: jax.sharding.Mesh
  key: jax.Array
  stop: stop_lib.Stop
  pulse: pulse.Pulse


@dataclasses.dataclass(frozen=True)
class Report:
  """Who is told how a run goes.

  Attributes:
    log: `metrics.jsonl` and TensorBoard, on the first host.
    bar: the terminal.
    meter: sums up updates for both.
    status: `status.json`.
    profile: the trace, if asked for.
    compiled: counts what is compiled.
  """

  log: log.Log | log.Nothing
  bar: progress.Progress
  meter: meter.Meter
  status: status_lib.Status | status_lib.Nothing
  profile: trace.Profile
  compiled: compilation.Compiled


@dataclasses.dataclass(frozen=True)
class Run:
  """Objects that all phases of a run share."""

  config: Any
  task: task_lib.Task
  objective: task_lib.Objective
  hosts: Hosts
  report: Report
  checkpoints: checkpoint.Checkpoints


def run_phase(
  run: Run, phase: task_lib.Phase, state: Any, compiled: dict
) -> tuple[step_lib.TrainState, dict[str, Any]]:
  """Trains to the end of a phase, evaluating, logging and saving.

  Args:
    run: what the phases share.
    phase: the phase to train. If it was interrupted, its remaining steps are
      trained, or only the evaluation at its end is run.
    state: state to continue from; donated.
    compiled: {length: {name: executable}} of the phase's programs.

  Returns:
    (state, predictions): after the last phase, predictions have what the task
    kept of the trained model's, for `task.HELD_OUT` and its other rows.

  Raises:
    errors.UserError: if the run cannot work.
    errors.Interrupted: after a signal, with the state saved.
  """
  longest = compiled[phase.seq_length]
  with shortage.explaining(run.config, phase, longest, run.hosts.mesh):
    return _run_phase(run, phase, state, compiled)


def _run_phase(run, phase, state, compiled):
  first, end = int(state.step), phase.first + phase.steps
  every, save_every = run.config.eval.every, run.config.checkpoint.every
  update = _by_length(compiled, programs.TRAIN)
  evaluation = _by_length(compiled, programs.EVALUATE)
  _check_start(run, phase, state, evaluation)
  costs = {
    length: {
      'sequences': phase.batch_size,
      'flops': run.objective.flops(
        dataclasses.replace(phase, seq_length=length)
      ),
    }
    for length in compiled
  }
  run.report.status.note(state='running', step=first, phase=phase.number)
  run.report.profile.begin_phase(first, end)
  run.report.meter.begin_phase()
  batches, seen = _batches(run, phase, first, end), set()
  with contextlib.closing(batches), _frozen_heap():
    for step in range(first, end):
      if run.hosts.stop.signum is not None:
        saving.stop(run, step, state)
      if every and step % every == 0 and step:
        _evaluate(run, phase, step, state, evaluation)
      before = dataclasses.replace(run.report.compiled)
      with run.report.profile.update(step + 1):
        state, length = _update(run, step + 1, batches, costs, update, state)
      if length in seen:
        _check_compiled(run, step + 1, before)
      seen.add(length)
      if (step + 1) % save_every == 0 or run.hosts.stop.save:
        run.report.meter.flush()
        # During skipped updates, saving would delete an earlier checkpoint.
        if not run.report.meter.skipped_in_a_row:
          saving.save(run, step + 1, state)
    predictions = {}
    if end == sum(run.config.phases.steps):
      state, predictions = _end_run(run, phase, end, state, evaluation)
    run.hosts.stop.ask()
    if run.hosts.stop.signum is not None:
      saving.stop(run, end, state)
  return state, predictions


def _end_run(run, phase, end, state, evaluation):
  """Saves and evaluates; returns the run's state, the best, and predictions."""
  # First, since the evaluation raises if its loss is not finite.
  saving.save(run, end, state)
  found = _evaluate(run, phase, end, state, evaluation)
  if run.checkpoints.best and run.checkpoints.best[0] != end:
    state, found = _take_best(run, phase, end, state, evaluation)
  predictions = {task_lib.HELD_OUT: found}
  for name, rows in run.task.others.items():
    label, count = f'predicting {name}', rows.eval_batches(phase)
    with progress.Progress(count, 'batches', label, leave=False) as bar:
      _, found = _predict(run, phase, end, state, evaluation, rows, bar)
    predictions[name] = found
  return state, predictions


def _by_length(compiled, name):
  """Returns a function that calls the program for its batch's length."""

  def call(state, batch, *others):
    return _choose(compiled, batch)[name](state, batch, *others)

  return call


def _choose(by_length, batch):
  """Returns the value for a batch's length; the longest's for an unknown one.

  That program then says which shapes it allows.
  """
  return by_length.get(_get_length(batch), by_length[max(by_length)])


def _get_length(batch) -> int:
  return batch['input_mask'].shape[-1]


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


def _batches(run, phase, first, end):
  """Returns an iterator of the batches of this process, on the host."""
  own = device_mesh.find_own_rows(run.hosts.mesh, phase.batch_size)
  make = functools.partial(run.task.train_batch, phase, rows=own)
  return prefetch.make_ahead(make, first, end, run.config.data.loader_workers)


def _check_start(run, phase, state, evaluation):
  """Checks the loss of new parameters; stops if a signal came meanwhile."""
  first = int(state.step)
  if first == 0:
    with run.report.meter.paused():
      own = device_mesh.find_own_rows(run.hosts.mesh, phase.eval_batch_size)
      batch = run.task.train_batch(phase, first, own)
      sums, _ = evaluation(
        state.params, device_mesh.put_batch(run.hosts.mesh, batch)
      )
      first_batch.check(
        *(
          run.task,
          run.objective,
          phase,
          sums,
          'init_from' in run.checkpoints.facts,
        ),
        run.config.model.hidden_size,
        run.report.bar,
      )
  run.hosts.stop.ask()
  if run.hosts.stop.signum is not None:
    saving.stop(run, first, state)


def _update(run, number, batches, costs, update, state):
  """Dispatches an update, then reads the metrics of the previous one.

  Returns:
    (state, length of the batch).
  """
  start = time.monotonic()
  batch = next(batches)
  length = _get_length(batch)
  run.hosts.pulse.updates += 1
  costs = {**_choose(costs, batch), 'waited': time.monotonic() - start}
  with jax.transfer_guard('disallow'):
    arrays = device_mesh.put_batch(run.hosts.mesh, batch)
    costs['tokens'] = distributed.sum_global(
      batch['input_mask'], arrays['input_mask']
    )
    state, metrics = update(state, arrays, run.hosts.key)
    run.hosts.stop.ask_ahead(run.hosts.mesh, saving.is_due(run))
    run.report.meter.add(number, metrics, costs)
  run.report.status.note(step=number, loss=run.report.meter.loss)
  return state, length


def _check_compiled(run, number, before):
  """Prints a warning if an update compiled anything.

  The first of each length may: sums over hosts are not called as compiled.
  """
  count = run.report.compiled.count - before.count
  if count:
    seconds = run.report.compiled.seconds - before.seconds
    run.report.log.write(
      'compiled', number, {'programs': count, 'seconds': seconds}
    )
    run.report.bar.write(
      f'WARNING: step {number:,} compiled {count} program(s) in '
      f'{seconds:.1f} s; all should have been compiled before: please report it.'
    )


def _evaluate(run, phase, step, state, evaluation):
  """Evaluates on the held-out data and logs; returns what the task kept."""
  start, task = time.monotonic(), run.task

  def measure(rows):
    totals, kept = _predict(run, phase, step, state, evaluation, rows)
    losses = run.objective.losses
    return evaluate.compute_means(totals, losses, task.derive), kept

  with run.report.meter.paused():
    means, kept = measure(task)
    if not math.isfinite(means['loss']):
      raise errors.UserError(
        f'the held-out loss at step {step:,} is {means["loss"]}: the model '
        'computes numbers that are not finite. Look at the held-out data, or '
        'use another --workdir with a lower optimizer.learning_rate.'
      )
    scores = task.score(kept)
    means |= scores
    means |= task.compare({x: measure(y)[0] for x, y in task.compared.items()})
    seconds = time.monotonic() - start
    goals = _find_goals(run, step, means)
    run.report.log.write('eval', step, {**means, **goals, 'seconds': seconds})
    run.report.status.note(held_out=means)
    run.report.bar.write(
      f'held-out at step {step:,} ({seconds:.1f} s): {task.word(means)}'
    )
  if task.keep_best:
    saving.note_best(run, step, state, next(iter(scores.values())))
  return kept


def _find_goals(run, step, means) -> dict[str, float]:
  """Returns the work so far and, of each goal, that until it was reached."""
  reached = run.task.reached(means)
  if not reached:
    return {}
  phases = task_lib.list_phases(run.config)
  work = task_lib.count_work(run.objective, phases, step)
  found, before = dict(work), run.report.log.evaluation
  for goal, now in reached.items():
    own = {f'{goal}_{kind}': value for kind, value in work.items()}
    if own.keys() <= before.keys():
      found |= {name: before[name] for name in own}
    elif now:
      found |= own
      run.report.bar.write(
        f'{goal.replace("_", " ")} at step {step:,}: {work["tokens"]:,} tokens, '
        f'{work["flops"]:.3g} FLOPs'
      )
  return found


def _take_best(run, phase, end, state, evaluation):
  """Returns the state of the best evaluation, and its predictions."""
  step, score = run.checkpoints.best
  run.report.bar.write(
    f'the result is the model of step {step:,}, the best on held-out data '
    f'({score:.4f})'
  )
  template = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
  )
  with run.report.meter.paused(), run.hosts.pulse.watching(False):
    state = run.checkpoints.restore_best(template)
  _, kept = _predict(run, phase, end, state, evaluation, run.task)
  return state, kept


def _predict(run, phase, step, state, evaluation, rows, bar=None):
  """Returns `evaluate.evaluate` of a task's held-out rows, or of others.

  A signal ends it early.
  """

  def collect(kept, i, predictions):
    if bar:
      bar.update(1)
    return rows.collect(kept, phase, i, predictions)

  def name_part(i):
    return rows.name_eval_part(phase, i)

  with contextlib.closing(_held_out(run, phase, rows)) as batches:
    found = evaluate.evaluate(
      evaluation, state.params, batches, collect, name_part
    )
  if found is None:
    saving.stop(run, step, state)
  return found


def _held_out(run, phase, rows):
  """Yields the batches of rows on the devices; None after a signal."""
  own = device_mesh.find_own_rows(run.hosts.mesh, phase.eval_batch_size)
  make = functools.partial(rows.eval_batch, phase, rows=own)
  made = prefetch.make_ahead(make, 0, rows.eval_batches(phase))
  with contextlib.closing(made):
    for batch in made:
      run.hosts.stop.ask()
      if run.hosts.stop.signum is not None:
        yield None
      run.hosts.pulse.evaluated += 1
      yield device_mesh.put_batch(run.hosts.mesh, batch)
