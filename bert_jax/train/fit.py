"""Training from start to end, for every task: `fit(config, task, workdir)`."""

import contextlib
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.parallel import agreement, device_mesh, distributed
from bert_jax.parallel import stop as stop_lib
from bert_jax.runtime import progress, signals, storage
from bert_jax.runtime import pulse as pulse_lib
from bert_jax.train import (
  compilation,
  initial_state,
  loop,
  meter,
  programs,
  shortage,
  trace,
  tuning,
)
from bert_jax.train import step as step_lib
from bert_jax.train import task as task_lib
from bert_jax.workdir import checkpoint, claim, log, paths
from bert_jax.workdir import status as status_lib


def check_devices(config: config_dict.ConfigDict):
  """Raises errors.UserError unless the devices can share every batch."""
  mesh = device_mesh.make_mesh(config.mesh.model)
  for phase in task_lib.list_phases(config):
    device_mesh.check_batch(mesh, phase.batch_size, phase.accumulate)


def check_disk(
  config: config_dict.ConfigDict, objective: task_lib.Objective, workdir: str
):
  """Raises errors.UserError unless a run's checkpoints fit on its disk."""
  mesh = device_mesh.make_mesh(config.mesh.model)
  _, shapes, _ = programs.plan_initial_state(config, objective, mesh)
  # An old one is deleted only after the new one is complete, hence + 1.
  best = config.finetuning.select == 'best'  # is kept beside the newest
  count = 1 if claim.has_begun(workdir) else config.checkpoint.keep + 1 + best
  needed, free = (
    count * checkpoint.count_bytes(shapes),
    storage.count_free(workdir),
  )
  if free < needed:
    fewer = ', lower checkpoint.keep' if config.checkpoint.keep > 1 else ''
    raise errors.UserError(
      f'{workdir} has {free / 1e6:,.0f} MB free, but {count} more checkpoint(s) '
      f'need {needed / 1e6:,.0f} MB; free space{fewer} or use another --workdir.'
    )


def fit(
  config: config_dict.ConfigDict,
  task: task_lib.Task,
  workdir: str,
  status: status_lib.Status | status_lib.Nothing = status_lib.NOTHING,
  pulse: pulse_lib.Pulse | None = None,
) -> tuple[Any, dict[str, Any], int]:
  """Trains, or continues from the newest undamaged checkpoint.

  Args:
    workdir: local or in a bucket; gets `checkpoints/`, `metrics.jsonl`,
      `tensorboard/` and, if asked for, `profile/`.
    status: is told how far the run is.
    pulse: shows another thread that training goes on; None if none looks.

  Returns:
    (params, predictions, step), on every process: the trained parameters, numpy
    arrays; what the task kept of their predictions, see `loop.run_phase`; and
    after how many updates they were reached.

  Raises:
    errors.UserError: if the run cannot work.
    errors.Interrupted: after SIGINT or SIGTERM, with the state saved.
  """
  check_devices(config)
  mesh = device_mesh.make_mesh(config.mesh.model)
  pulse = pulse or pulse_lib.Pulse()
  start = {
    program.name: program
    for program in programs.list_start(config, task.objective(config), mesh)
  }
  with contextlib.ExitStack() as stack:
    run, state = _begin(
      config, task, workdir, status, mesh, start, pulse, stack
    )
    step, phases = int(state.step), task_lib.list_phases(config)
    left = [
      phase
      for phase in phases
      if step < phase.first + phase.steps or phase is phases[-1]
    ]
    # Those of all phases, so that an error in the last is known before the
    # first.
    with run.report.meter.paused():
      compiled = _compile(run, _later(start), left, step)
    with pulse.watching():
      for phase in left:
        state, predictions = loop.run_phase(
          run, phase, state, compiled[phase.number]
        )
    stop = run.hosts.stop
    stop.ask()
    if stop.signum is not None:  # came while the last save was running
      raise errors.Interrupted(stop.signum, signals.RESUME, everywhere=True)
    step = int(state.step)
    return programs.gather_on_host(state.params, start), predictions, step


def _later(start):
  """Returns the programs of a run's start that run later."""
  at_once = programs.INITIALISE, programs.PLACE, programs.PLACE_KEY
  return [p for name, p in start.items() if name not in at_once]


def _compile(run, start, phases, step) -> dict[int, dict[int, dict]]:
  """Compiles a run; returns {number of the phase: {length: {name: program}}}."""
  results = compilation.compile_run(
    run.config,
    run.task.objective,
    run.hosts.mesh,
    start,
    phases,
    run.report.bar.write,
  )
  results.pop(None)
  ways = {str(x.number): tuning.describe(results[x].config) for x in phases}
  run.report.log.write('compute', step, ways)
  found: dict[int, dict[int, dict]] = {phase.number: {} for phase in phases}
  for phase, result in results.items():
    programs_of = compilation.get_executables(result.outcomes)
    shortage.check(run.config, phase, programs_of, run.hosts.mesh)
    found[phase.number][phase.seq_length] = programs_of
  return found


def _devices(mesh) -> dict:
  """Describes the devices for the log, from which `calibrate` reads them."""
  return {
    'device_kind': mesh.devices.flat[0].device_kind,
    'devices': mesh.size,
    **agreement.get_versions(),
  }


def _begin(config, task, workdir, status, mesh, start, pulse, stack):
  """Opens a run's resources, which `stack` closes; returns (run, state)."""
  total = sum(config.phases.steps)
  stop = stop_lib.Stop(stack.enter_context(signals.recording()))
  checkpoints = stack.enter_context(
    checkpoint.Checkpoints(
      paths.checkpoints(workdir),
      config.checkpoint.keep,
      config.checkpoint.keep_every,
    )
  )
  status.follow(lambda: checkpoints.complete)
  (template,) = start[programs.FINGERPRINT].arguments
  with shortage.explaining_start(template, mesh):
    state, origin = initial_state.make(
      config, task, start, checkpoints, workdir, status.known
    )
  step = int(state.step)
  if not step:
    status.note(checkpoint=None)
  rows = log.Nothing()
  if distributed.is_first():
    rows = stack.enter_context(log.Log(workdir, step))
  bar = stack.enter_context(
    progress.Progress(total, 'steps', 'training', step, lines=False)
  )
  objective = task.objective(config)
  meters = meter.Meter(
    rows, bar, config.log.every, total, task, objective.losses, workdir
  )
  traced = trace.Profile(workdir, config.profile_steps, meters, bar)
  checkpoints.facts = {'task': task.facts, **origin}
  run = loop.Run(
    config,
    task,
    objective,
    loop.Hosts(
      mesh,
      start[programs.PLACE_KEY].jitted(step_lib.run_key(config)),
      stop,
      pulse,
    ),
    loop.Report(
      log=rows,
      bar=bar,
      meter=meters,
      status=status,
      profile=stack.enter_context(traced),
      compiled=stack.enter_context(compilation.counting()),
    ),
    checkpoints,
  )
  changed = {'changed': claim.find_changes(workdir, config)}
  rows.write('run', step, {**task.facts, **origin, **_devices(mesh), **changed})
  if distributed.is_first():
    claim.adopt(workdir, config)
  return run, state
