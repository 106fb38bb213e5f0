"""Training from start to end, for every task: `fit(config, task, workdir)`."""

import contextlib
import dataclasses
import functools
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import jax
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.model import parameters
from bert_jax.parallel import agreement, device_mesh, distributed
from bert_jax.runtime import progress, signals, storage, workers
from bert_jax.trainer import programs, shortage, step, tuning
from bert_jax.trainer.loop import run_phase
from bert_jax.trainer.meter import Meter
from bert_jax.trainer.run import Plan, Profile, Report, Run, Stop
from bert_jax.trainer.task import Objective, Task, list_phases
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
  _, shapes, _ = programs.plan_initial_state(config.optimizer, objective, mesh)
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

  Returns (params, predictions, step), on every process: the trained parameters,
  numpy arrays; what the task kept of their predictions, see `loop.run_phase`; and
  after how many updates they were reached. Raises errors.Interrupted after SIGINT
  or SIGTERM, with the state saved.
  """
  status = status or Status()
  check_devices(config)
  mesh = device_mesh.make_mesh(config.mesh.model)
  listed = programs.list_start(config, task.objective, mesh)
  start = {program.name: program for program in listed}
  # The fingerprint's argument is the whole state.
  (template,) = start[programs.FINGERPRINT].arguments
  initial = start[programs.INITIALISE]
  with contextlib.ExitStack() as stack:
    stop = Stop(stack.enter_context(signals.recording()))
    keep = config.checkpoint.keep, config.checkpoint.keep_every
    made = checkpoint.Checkpoints(paths.checkpoints(workdir), *keep)
    checkpoints = stack.enter_context(made)
    if programs.GROUP in start:
      checkpoints.lay_out(start[programs.GROUP].jitted)
    status.follow(lambda: checkpoints.complete)
    _describe_model(template.params, config.data.vocab_size)
    state, origin = _find_state(
      config, task, start, checkpoints, workdir, status
    )
    checkpoints.facts = {'task': task.facts, **origin}
    plan, done = _make_plan(config, start), int(state.step) if state else 0
    # Tuned, since FLOPs depend on where the last layer is computed.
    tuned = tuning.tune(task.objective, mesh, plan.phases[-1])
    known = dataclasses.replace(task, objective=tuned)
    report = stack.enter_context(_report(known, plan, workdir, status, done))
    run = Run(known, mesh, plan, checkpoints, report, stop)
    facts = {**task.facts, **origin, **_list_facts(mesh)}
    changed = claim.find_changes(workdir, config)
    report.log.write('run', done, facts | {'changed': changed})
    if distributed.is_first():
      claim.adopt(workdir, config)
    # Those after `done` updates. A phase that ends there is among them, without
    # steps: the run may have stopped between its last save and its evaluation.
    left = [
      dataclasses.replace(x, first=done, steps=0) if end == done else x
      for x in plan.phases
      if done <= (end := x.first + x.steps)
    ]
    # Checks all phases, so that an error in the last is known before the first.
    _stop_if_asked(stop)  # no update could be lost
    with report.meter.paused():
      compiled = _compile(config, task.objective, run, start, left, state)
      _stop_if_asked(stop)
      state = state or initial.jitted(jax.random.key(config.seed))
    with stop.timer.running():
      for phase in left:
        own = compiled[phase.number]
        state, predictions = run_phase(run, phase, state, own)
    params = _gather_on_host(state.params, start)
  _stop_if_asked(stop)  # it came during the last save
  return params, predictions, int(state.step)


def _stop_if_asked(stop):
  stop.ask()
  if stop.signum is not None:
    raise errors.Interrupted(stop.signum, everywhere=True)


def _compile(config, objective, run, start, left, state):
  """Compiles a run; returns {phase's number: {length: {name: program}}}."""
  ran = {programs.PLACE, programs.PLACE_KEY, programs.RATES}
  if state:
    ran.add(programs.INITIALISE)
  later = [program for name, program in start.items() if name not in ran]
  mesh, say, how = run.mesh, run.report.bar.write, objective.how
  device, dtype = mesh.devices.flat[0], objective.bert.dtype
  if advice := tuning.find_advice(how, dtype, device):
    say(advice)
  results = programs.compile_run(config, objective, mesh, later, left, say)
  (template,) = start[programs.FINGERPRINT].arguments
  compiled: dict[int, dict[int, dict]] = {phase.number: {} for phase in left}
  for phase, result in results.items():
    own = programs.get_executables(result.outcomes)  # raises if one failed
    shortage.check(result.outcomes, template, mesh)
    if phase:
      compiled[phase.number][phase.seq_length] = own
  ways = {str(x.number): tuning.describe(results[x].how) for x in left}
  run.report.log.write('compute', int(state.step) if state else 0, ways)
  return compiled


def _make_plan(config, start) -> Plan:
  run_key = step.run_key(config.seed, config.rng)
  return Plan(
    phases=list_phases(config),
    key=start[programs.PLACE_KEY].jitted(run_key),
    rates=functools.lru_cache(1)(start[programs.RATES].jitted),
    eval_every=config.eval.every,
    save_every=config.checkpoint.every,
    save_minutes=config.checkpoint.minutes,
    keep_best=config.finetuning.select == 'best',
    log_every=config.log.every,
    profiled=config.profile_steps,
  )


@contextlib.contextmanager
def _report(task, plan, workdir, status, done) -> Iterator[Report]:
  """Opens what a run of which `done` updates are done writes to."""
  with contextlib.ExitStack() as stack:
    rows = log.Nothing()
    if distributed.is_first():
      rows = stack.enter_context(log.Log(workdir, done))
    bar = stack.enter_context(
      progress.Progress(plan.steps, 'steps', 'training', done, lines=False)
    )
    meter = Meter(rows, bar, status, plan.log_every, plan.steps, task)
    profile = Profile(workdir, plan.profiled, done, meter, bar)
    yield Report(rows, bar, status, meter, stack.enter_context(profile))


def _list_facts(mesh):
  device = mesh.devices.flat[0]
  facts = {
    'command': shlex.join(sys.orig_argv),
    'device_kind': device.device_kind,
    'devices': mesh.size,
    **agreement.get_versions(),
  }
  if device.platform == 'cpu':
    # XLA divides sums among them, so the bits depend on how many there are.
    facts['cores'] = workers.count_cores()
  return facts


def _describe_model(params, vocab_size):
  # As in the export: without padding rows of the vocabulary.
  drop = functools.partial(parameters.drop_padding_rows, vocab_size=vocab_size)
  size = sum(x.size for x in jax.tree.leaves(jax.eval_shape(drop, params)))
  devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
  print(f'model: {size:,} parameters on {devices}', flush=True)


def _find_state(config, task, start, checkpoints, workdir, status):
  """Restores the newest undamaged checkpoint, or starts as the task says.

  Returns (state, origin): None if there is neither; {} or {'init_from': facts},
  saved in every checkpoint, since the model that it describes may be deleted.
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
  if config.continue_from:
    return _continue(config.continue_from, template)
  if task.start is None:
    return None, {}
  state = start[programs.INITIALISE].jitted(jax.random.key(config.seed))
  params, facts = task.start(_gather_on_host(state.params, start))
  params = start[programs.PLACE].jitted(params)
  return state.replace(params=params), {'init_from': facts} if facts else {}


def _continue(name, template):
  """Restores the state of another run's checkpoint, RUN@STEP."""
  directory, step = paths.split_step(name)
  path = os.path.join(paths.checkpoints(directory), str(step))
  state, saved = checkpoint.restore_step(path, template)
  mark = saved['fingerprint']
  print(f'goes on from {path}, fingerprint={mark}', flush=True)
  about = {'source': name, 'step': step, 'fingerprint': mark}
  return state, {'continue_from': about}


def _check_data(facts, state, saved):
  if changed := errors.find_changes(saved['task'], facts):
    raise errors.UserError(
      f'the checkpoint was trained on other data ({"; ".join(changed[:3])}); '
      'use another --workdir.'
    )
  print(
    f'resumed at step {int(state.step):,}, fingerprint={saved["fingerprint"]}',
    flush=True,
  )
  origins = 'init_from', 'continue_from'
  return state, {k: saved[k] for k in saved if k in origins}


def _gather_on_host(params, start):
  if programs.GATHER in start:
    params = start[programs.GATHER].jitted(params)
  return jax.device_get(params)
