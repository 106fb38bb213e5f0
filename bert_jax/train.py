"""The training loop, for every task: `fit(config, task, workdir)`."""

import contextlib
import dataclasses
import functools
import os
import shutil
import time
from typing import Any

import jax
import numpy as np

from bert_jax import (
  checkpoint,
  distributed,
  errors,
  evaluate,
  log,
  meter,
  optim,
  partition,
  progress,
  sharding,
  signals,
)
from bert_jax import step as step_lib
from bert_jax import task as task_lib
from bert_jax.data import loader

_INITIAL_LOSS_TOLERANCE = 0.5  # nats


@dataclasses.dataclass
class _Run:
  """What the parts of the loop share."""

  config: Any
  task: task_lib.Task
  mesh: jax.sharding.Mesh
  steps: int
  key: jax.Array
  stop: distributed.Stop
  checkpoints: checkpoint.Checkpoints
  started: dict
  log: log.Log
  meter: meter.Meter
  bar: progress.Progress


def use_compilation_cache():
  """Keeps compiled programs from one run to the next."""
  if not jax.config.jax_compilation_cache_dir:  # not the user's own
    directory = os.path.expanduser('~/.cache/bert_jax/xla')
    jax.config.update('jax_compilation_cache_dir', directory)


def check_devices(config):
  """Raises errors.UserError unless the devices can share every batch."""
  mesh = sharding.make_mesh(config.mesh.model)
  for phase in task_lib.phases(config):
    sharding.check_batch(mesh, phase.batch_size, phase.accumulate)


def fit(config, task: task_lib.Task, workdir: str) -> Any:
  """Trains, or continues where the newest sound checkpoint stands.

  Args:
    config: the experiment.
    task: what to learn.
    workdir: gets `checkpoints/`, `metrics.jsonl` and `tensorboard/`.

  Returns:
    The trained parameters.

  Raises:
    errors.UserError: where the run cannot work.
    errors.Interrupted: after SIGINT or SIGTERM, with the state saved.
  """
  check_devices(config)
  mesh = sharding.make_mesh(config.mesh.model)
  phases = task_lib.phases(config)
  tx = optim.make(config.optimizer)
  total = sum(config.phases.steps)
  with contextlib.ExitStack() as stack:
    stop = distributed.Stop(stack.enter_context(signals.deferred()))
    checkpoints = stack.enter_context(
      checkpoint.Checkpoints(
        os.path.join(workdir, 'checkpoints'),
        config.checkpoint.keep,
        config.checkpoint.keep_every,
      )
    )
    state, started = _start(config, task, tx, mesh, checkpoints, workdir)
    step = int(state.step)
    rows = log.Nothing()
    if distributed.is_first():
      rows = stack.enter_context(log.Log(workdir, step))
    bar = stack.enter_context(
      progress.Progress(total, 'steps', 'training', step, lines=False)
    )
    run = _Run(
      config=config,
      task=task,
      mesh=mesh,
      steps=total,
      key=distributed.put(step_lib.run_key(config), sharding.replicated(mesh)),
      stop=stop,
      checkpoints=checkpoints,
      started=started,
      log=rows,
      meter=meter.Meter(rows, bar, config.log.every, total),
      bar=bar,
    )
    rows.write('run', step, {**task.facts, **started})
    for phase in phases:
      if step < phase.first + phase.steps or phase is phases[-1]:
        update = step_lib.jitted(config, task, phase, mesh)
        state = _run_phase(run, phase, state, update)
  stop.ask()
  if stop.signum is not None:  # while the last checkpoint was being written
    raise errors.Interrupted(stop.signum, signals.RESUME)
  return state.params


def _start(config, task, tx, mesh, checkpoints, workdir):
  """Restores the newest sound checkpoint, or initialises.

  Returns:
    (state, started): the second is {} or {'init_from': facts} and goes from
    checkpoint to checkpoint, since what it tells of may be gone.
  """
  init = functools.partial(step_lib.init_state, task=task, tx=tx)
  key = jax.random.key(config.seed)
  shapes = jax.eval_shape(init, key)
  layout = partition.state(mesh, shapes)
  template = jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    shapes,
    layout,
  )
  size = sum(x.size for x in jax.tree.leaves(shapes.params))
  devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
  print(f'model: {size:,} parameters on {devices}', flush=True)
  whole = partition.kept_whole(mesh, shapes.params)
  if whole:
    print(
      f'mesh.model={config.mesh.model} does not divide the vocabulary: '
      f'{" and ".join(whole)} stay whole on every device',
      flush=True,
    )
  restored = checkpoints.restore(template, config.checkpoint.start_over)
  # An old one goes when the new one is whole, hence one more than is kept.
  missing = 1 if restored else config.checkpoint.keep + 1
  _check_disk(workdir, checkpoint.state_bytes(shapes), missing)
  if restored is None:
    state = jax.jit(init, out_shardings=layout)(key)
    if task.start is None:
      return state, {}
    params, facts = task.start(
      jax.device_get(distributed.on_host(state.params))
    )
    params = distributed.put(params, layout.params)
    return state.replace(params=params), {'init_from': facts}
  state, facts = restored
  changed = task_lib.changes(facts['task'], task.facts)
  if changed:
    raise errors.UserError(
      f'the checkpoint was trained on other data ({"; ".join(changed[:3])}); '
      'use another --workdir.'
    )
  print(
    f'resumed at step {int(state.step):,}, fingerprint={facts["fingerprint"]}',
    flush=True,
  )
  return state, {k: facts[k] for k in facts if k == 'init_from'}


def _check_disk(workdir, size, checkpoints):
  free = shutil.disk_usage(workdir).free
  if free < size * checkpoints:
    raise errors.UserError(
      f'{workdir} has {free / 1e9:.2f} GB free, but {checkpoints} more '
      f'checkpoint(s) need {size * checkpoints / 1e9:.2f} GB; free space or '
      'lower checkpoint.keep.'
    )


def _run_phase(run: _Run, phase, state, update) -> step_lib.TrainState:
  """Trains to the end of a phase, evaluating, logging and saving."""
  first, end = int(state.step), phase.first + phase.steps
  own = sharding.own_rows(run.mesh, phase.batch_size)
  own_eval = sharding.own_rows(run.mesh, phase.eval_batch_size)
  batches = loader.prefetch(
    functools.partial(run.task.train_batch, phase, rows=own),
    first,
    end,
    run.config.data.loader_workers,
  )
  step = min(first, end - 1)
  arrays, eval_arrays = (
    sharding.put_batch(run.mesh, run.task.train_batch(phase, step, rows))
    for rows in (own, own_eval)
  )
  with run.meter.paused():
    evaluation = _compile(
      run,
      f'evaluation at length {phase.seq_length}',
      jax.jit(functools.partial(step_lib.eval_step, task=run.task)),
      state.params,
      eval_arrays,
    )
    if first == 0:
      _check_start(run, phase, evaluation(state.params, eval_arrays))
    run.stop.ask()
    if run.stop.signum is not None:
      _stop(run, first, state)
    if first < end:
      update = _compile(
        run,
        f'training step at length {phase.seq_length}',
        update,
        state,
        arrays,
        run.key,
      )
  flops = run.task.flops(phase)
  every = run.config.eval.every
  try:
    for step in range(first, end):
      if run.stop.signum is not None:
        _stop(run, step, state)
      if every and step % every == 0 and step:
        _evaluate(run, phase, step, state, evaluation)
      start = time.monotonic()
      batch = next(batches)
      costs = {
        'waited': time.monotonic() - start,
        'sequences': phase.batch_size,
        'flops': flops,
      }
      with jax.transfer_guard('disallow'):
        arrays = sharding.put_batch(run.mesh, batch)
        costs['tokens'] = distributed.total(
          batch['input_mask'], arrays['input_mask']
        )
        state, metrics = update(state, arrays, run.key)
        run.stop.ask_ahead(run.mesh)
        run.meter.add(step + 1, metrics, costs)
      if (step + 1) % run.config.checkpoint.every == 0:
        run.meter.flush()
        # Among skipped updates a save would push out a checkpoint from before.
        if not run.meter.skipped_in_a_row:
          _save(run, step + 1, state)
    if end == run.steps:
      _evaluate(run, phase, end, state, evaluation)
      _save(run, end, state)
    run.stop.ask()
    if run.stop.signum is not None:
      _stop(run, end, state)
  finally:
    batches.close()
  return state


def _compile(run, what, jitted, *args):
  run.bar.write(f'compiling the {what} ...')
  start = time.monotonic()
  compiled = jitted.lower(*args).compile()
  run.bar.write(f'compiled the {what} in {time.monotonic() - start:.1f} s')
  return compiled


def _check_start(run, phase, sums):
  """Looks at the first batch and the untrained loss (the sanity gates)."""
  if distributed.is_first():
    whole = run.task.train_batch(phase, 0, np.arange(phase.batch_size))
    for line in run.task.describe(whole):
      run.bar.write(line)
  totals: dict[str, list[float]] = {}
  evaluate.add(totals, jax.device_get(sums))
  loss, expected = evaluate.means(totals)['loss'], run.task.expected_loss
  if run.started:
    run.bar.write(f'initial loss {loss:.3f}; guessing costs {expected:.3f}')
    return
  run.bar.write(f'initial loss {loss:.3f}, expected {expected:.3f}')
  if not abs(loss - expected) <= _INITIAL_LOSS_TOLERANCE:
    raise errors.UserError(
      f'the initial loss is {loss:.3f}, but guessing costs {expected:.3f} '
      f'(+-{_INITIAL_LOSS_TOLERANCE}); look at model.initializer_std.'
    )


def _evaluate(run, phase, step, state, evaluation):
  """Evaluates on the held-out data and logs; a signal ends it early."""
  start = time.monotonic()

  own = sharding.own_rows(run.mesh, phase.eval_batch_size)

  def batches():
    for i in range(run.task.eval_batches(phase)):
      run.stop.ask()
      if run.stop.signum is not None:
        yield None
      else:
        batch = run.task.eval_batch(phase, i, own)
        yield sharding.put_batch(run.mesh, batch)

  with run.meter.paused():
    means = evaluate.evaluate(evaluation, state.params, batches())
    if means is None:
      _stop(run, step, state)
    seconds = time.monotonic() - start
    run.log.write('eval', step, {**means, 'seconds': seconds})
    run.bar.write(
      f'held-out at step {step:,}: {meter.describe(means)} ({seconds:.1f} s)'
    )


def _save(run, step, state):
  if run.checkpoints.newest == step:
    return
  with run.meter.paused():
    facts = {'task': run.task.facts, **run.started}
    mark = run.checkpoints.save(step, state, facts)
    run.log.write('checkpoint', step, {'fingerprint': mark})
    run.bar.write(f'checkpoint at step {step:,}, fingerprint={mark}')


def _stop(run, step, state):
  run.meter.flush()
  _save(run, step, state)
  raise errors.Interrupted(run.stop.signum, signals.RESUME)
