"""Training from start to end, for every task: `fit(config, task, workdir)`."""

import contextlib
import os
from typing import Any

from bert_jax import (
  checkpoint,
  compilation,
  distributed,
  errors,
  initial_state,
  log,
  loop,
  meter,
  optim,
  profile,
  progress,
  sharding,
  signals,
)
from bert_jax import step as step_lib
from bert_jax import task as task_lib


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
    workdir: gets `checkpoints/`, `metrics.jsonl`, `tensorboard/` and, if asked
      for, `profile/`.

  Returns:
    The trained parameters.

  Raises:
    errors.UserError: where the run cannot work.
    errors.Interrupted: after SIGINT or SIGTERM, with the state saved.
  """
  check_devices(config)
  with contextlib.ExitStack() as stack:
    run, state = _begin(config, task, workdir, stack)
    step = int(state.step)
    phases = task_lib.phases(config)
    for phase in phases:
      if step < phase.first + phase.steps or phase is phases[-1]:
        state = loop.train(run, phase, state)
  run.stop.ask()
  if run.stop.signum is not None:  # while the last checkpoint was being written
    raise errors.Interrupted(run.stop.signum, signals.RESUME)
  return state.params


def _begin(config, task, workdir, stack):
  """Opens what a run needs, to be closed by `stack`; returns (run, state)."""
  mesh, total = sharding.make_mesh(config.mesh.model), sum(config.phases.steps)
  stop = distributed.Stop(stack.enter_context(signals.deferred()))
  checkpoints = stack.enter_context(
    checkpoint.Checkpoints(
      os.path.join(workdir, 'checkpoints'),
      config.checkpoint.keep,
      config.checkpoint.keep_every,
    )
  )
  state, started = initial_state.make(
    config, task, optim.make(config.optimizer), mesh, checkpoints, workdir
  )
  step = int(state.step)
  rows = log.Nothing()
  if distributed.is_first():
    rows = stack.enter_context(log.Log(workdir, step))
  bar = stack.enter_context(
    progress.Progress(total, 'steps', 'training', step, lines=False)
  )
  meters = meter.Meter(rows, bar, config.log.every, total)
  traced = profile.Profile(workdir, config.profile_steps, meters, bar)
  run = loop.Run(
    config=config,
    task=task,
    mesh=mesh,
    steps=total,
    key=distributed.put(step_lib.run_key(config), sharding.replicated(mesh)),
    stop=stop,
    checkpoints=checkpoints,
    started=started,
    log=rows,
    meter=meters,
    bar=bar,
    profile=stack.enter_context(traced),
    compiled=stack.enter_context(compilation.counted()),
  )
  rows.write('run', step, {**task.facts, **started})
  return run, state
