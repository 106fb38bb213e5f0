"""Training from start to end, for every task: `fit(config, task, workdir)`."""

import contextlib
import dataclasses
import functools
import shlex
import sys
from typing import Any

import jax
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.model import parameters
from bert_jax.parallel import agreement, device_mesh, distributed
from bert_jax.runtime import hang, process_pool, progress, signals, storage
from bert_jax.train import programs, shortage, step, tuning
from bert_jax.train.loop import run_phase
from bert_jax.train.meter import Meter
from bert_jax.train.run import Profile, Run, Stop
from bert_jax.train.task import Objective, Task, list_phases
from bert_jax.workdir import checkpoint, claim, log, paths
from bert_jax.workdir.status import Status


def check_devices(config: config_dict.ConfigDict):
  """Raises errors.UserError unless the devices can share every batch."""
  mesh = device_mesh.make_mesh(config.mesh.model)
  for phase in list_phases(config):
    device_mesh.check_batch(mesh, phase.batch_size, phase.accumulate)


def check_disk(
  config: config_dict.ConfigDict, objective: Objective, workdir: str
):
  """Raises errors.UserError unless a run's checkpoints fit on its disk."""
  mesh = device_mesh.make_mesh(config.mesh.model)
  _, shapes, _ = programs.plan_initial_state(config, objective, mesh)
  # An old one is deleted only after the new one is complete, hence + 1.
  best = config.finetuning.select == 'best'  # is kept beside the newest
  count = 1 if claim.has_begun(workdir) else config.checkpoint.keep + 1 + best
  size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
  needed = count * size
  free = storage.count_free(workdir)
  if free < needed:
    fewer = ', lower checkpoint.keep' if config.checkpoint.keep > 1 else ''
    raise errors.UserError(
      f'{workdir} has {free / 1e6:,.1f} MB free, but {count} more checkpoint(s) '
      f'need {needed / 1e6:,.1f} MB; free space{fewer} or use another --workdir.'
    )


def fit(
  config: config_dict.ConfigDict,
  task: Task,
  workdir: str,
  status: Status | None = None,
) -> tuple[Any, dict[str, Any], int]:
  """Trains, or continues from the newest undamaged checkpoint.

  Args:
    workdir: local or in a bucket; gets `checkpoints/`, `metrics.jsonl`,
      `tensorboard/` and, if asked for, `profile/`.

  Returns:
    (params, predictions, step), on every process: the trained parameters, numpy
    arrays; what the task kept of their predictions, see `loop.run_phase`; and
    after how many updates they were reached.

  Raises:
    errors.Interrupted: after SIGINT or SIGTERM, with the state saved.
  """
  status = status or Status()
  check_devices(config)
  mesh = device_mesh.make_mesh(config.mesh.model)
  listed = programs.list_start(config, task.objective(config), mesh)
  start = {program.name: program for program in listed}
  with contextlib.ExitStack() as stack:
    run, state = _begin(config, task, workdir, status, mesh, start, stack)
    done = int(state.step) if state else 0
    left = _list_left(list_phases(config), done)
    # Checks all phases, so that an error in the last is known before the first.
    _stop_if_asked(run)  # no update could be lost
    with run.meter.paused():
      at_once = {programs.INITIALISE} if state else set()
      compiled = _compile(run, start, left, done, at_once)
      _stop_if_asked(run)
      state = state or _initialise(config, start, mesh)
    with run.timer.running():
      for phase in left:
        own = compiled[phase.number]
        with shortage.explaining(
          config.compute.remat, phase, own[phase.seq_length], mesh
        ):
          state, predictions = run_phase(run, phase, state, own)
    params = gather_on_host(state.params, start)
  _stop_if_asked(run)  # it came during the last save
  return params, predictions, int(state.step)


def _stop_if_asked(run):
  """Stops between updates if a process got a signal; nothing is to be saved."""
  run.stop.ask()
  if run.stop.signum is not None:
    raise errors.Interrupted(run.stop.signum, everywhere=True)


def _list_left(phases, done):
  """Returns the phases after `done` updates.

  A phase that ends there is among them, without steps: the run may have stopped
  between its last save and its last evaluation.
  """
  return [
    dataclasses.replace(x, first=done, steps=0) if end == done else x
    for x in phases
    if done <= (end := x.first + x.steps)
  ]


def _compile(run, start, phases, done, at_once) -> dict[int, dict[int, dict]]:
  """Compiles a run; returns {phase's number: {length: {name: program}}}."""
  at_once = {programs.PLACE, programs.PLACE_KEY, programs.RATES, *at_once}
  later = [program for name, program in start.items() if name not in at_once]
  mesh, say = run.mesh, run.bar.write
  if advice := tuning.find_advice(run.config, mesh.devices.flat[0]):
    say(advice)
  results = programs.compile_run(
    run.config, run.task.objective, mesh, later, phases, say
  )
  programs.get_executables(results.pop(None).outcomes)  # raises if one failed
  ways = {str(x.number): tuning.describe(results[x].config) for x in phases}
  run.log.write('compute', done, ways)
  (state,) = start[programs.FINGERPRINT].arguments
  found: dict[int, dict[int, dict]] = {phase.number: {} for phase in phases}
  for phase, result in results.items():
    own = programs.get_executables(result.outcomes)
    shortage.check(run.config.compute.remat, phase, own, state, mesh)
    found[phase.number][phase.seq_length] = own
  return found


def _begin(config, task, workdir, status, mesh, start, stack):
  """Opens a run's resources, which `stack` closes; returns (run, state).

  The state is None if it is the initial one: that program is then compiled in
  parallel with the others.
  """
  stop = Stop(stack.enter_context(signals.recording()))
  checkpoints = stack.enter_context(
    checkpoint.Checkpoints(
      paths.checkpoints(workdir),
      config.checkpoint.keep,
      config.checkpoint.keep_every,
    )
  )
  if programs.GROUP in start:
    checkpoints.lay_out(start[programs.GROUP].jitted)
  status.follow(lambda: checkpoints.complete)
  # The fingerprint's argument is the whole state.
  (template,) = start[programs.FINGERPRINT].arguments
  _describe_model(template.params, config.data.vocab_size)
  with shortage.explaining_start(template, mesh):
    state, origin = _find_state(
      *(config, task, mesh, start, checkpoints, workdir, status)
    )
  done = int(state.step) if state else 0
  rows = log.Nothing()
  if distributed.is_first():
    rows = stack.enter_context(log.Log(workdir, done))
  total = sum(config.phases.steps)
  bar = stack.enter_context(
    progress.Progress(total, 'steps', 'training', done, lines=False)
  )
  # Resolved, since FLOPs depend on where the last layer is computed.
  device, length = mesh.devices.flat[0], config.phases.seq_length[-1]
  objective = task.objective(tuning.resolve(config, device, length))
  every, losses = config.log.every, objective.losses
  meter = Meter(rows, bar, status, every, total, task, losses)
  profile = Profile(workdir, config.profile_steps, meter, bar)
  checkpoints.facts = {'task': task.facts, **origin}
  run = Run(
    config=config,
    task=task,
    objective=objective,
    mesh=mesh,
    key=start[programs.PLACE_KEY].jitted(step.run_key(config)),
    rates=functools.lru_cache(1)(start[programs.RATES].jitted),
    stop=stop,
    timer=hang.Timer(),
    checkpoints=checkpoints,
    log=rows,
    bar=bar,
    meter=meter,
    status=status,
    profile=stack.enter_context(profile),
  )
  _log_start(run, workdir, done, origin)
  return run, state


def _log_start(run, workdir, done, origin):
  """Logs what the run is made of, then saves the fields that have changed."""
  device = run.mesh.devices.flat[0]
  facts = {
    **run.task.facts,
    **origin,
    'command': shlex.join(sys.orig_argv),
    'device_kind': device.device_kind,
    'devices': run.mesh.size,
    **agreement.get_versions(),
    'changed': claim.find_changes(workdir, run.config),
  }
  if device.platform == 'cpu':
    # XLA divides sums among them, so the bits depend on how many there are.
    facts['cores'] = process_pool.count_cores()
  run.log.write('run', done, facts)
  if distributed.is_first():
    claim.adopt(workdir, run.config)


def _describe_model(params, vocab_size):
  # As in the export: without padding rows of the vocabulary.
  own = jax.eval_shape(
    lambda x: parameters.drop_padding_rows(x, vocab_size), params
  )
  size = sum(x.size for x in jax.tree.leaves(own))
  devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
  print(f'model: {size:,} parameters on {devices}', flush=True)


def _initialise(config, start, mesh):
  (template,) = start[programs.FINGERPRINT].arguments
  with shortage.explaining_start(template, mesh):
    return start[programs.INITIALISE].jitted(jax.random.key(config.seed))


def _find_state(config, task, mesh, start, checkpoints, workdir, status):
  """Restores the newest undamaged checkpoint, or starts as the task says.

  Returns:
    (state, origin): state is None if there is neither; origin is {} or
    {'init_from': facts}. It is saved in every checkpoint, since the model that
    it describes may be deleted.
  """
  (template,) = start[programs.FINGERPRINT].arguments
  restored = checkpoints.restore(template, config.checkpoint.start_over)
  if restored is not None:
    return _check_data(task.facts, *restored)
  if not config.checkpoint.start_over:
    known = distributed.find_largest(status.known or 0)
    if known:
      raise errors.UserError(
        f'{paths.checkpoints(workdir)} lists no checkpoint, though '
        f'the run had one of step {known:,} ({paths.status(workdir)}). Restore '
        'them from a copy, or start from step 0 with '
        '--config.checkpoint.start_over=True.'
      )
  # Who watches the run hears at once that it starts from step 0.
  new = {'step': 0, 'phase': 0, 'loss': None, 'held_out': None}
  status.note(state='starting', checkpoint=None, **new)
  if task.start is None:
    return None, {}
  state = _initialise(config, start, mesh)
  params, facts = task.start(gather_on_host(state.params, start))
  params = start[programs.PLACE].jitted(params)
  return state.replace(params=params), {'init_from': facts} if facts else {}


def _check_data(facts, state, saved):
  changed = errors.find_changes(saved['task'], facts)
  if changed:
    raise errors.UserError(
      f'the checkpoint was trained on other data ({"; ".join(changed[:3])}); '
      'use another --workdir.'
    )
  print(
    f'resumed at step {int(state.step):,}, fingerprint={saved["fingerprint"]}',
    flush=True,
  )
  return state, {k: saved[k] for k in saved if k == 'init_from'}


def gather_on_host(params: Any, start: dict[str, programs.Program]):
  """Returns parameters as numpy arrays, on every process."""
  if programs.GATHER in start:
    params = start[programs.GATHER].jitted(params)
  return jax.device_get(params)
