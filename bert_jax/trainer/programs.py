"""Lists every program that a run executes on its devices, and compiles them.

A run does this before its first step; `preflight` and tests do it without the
devices. Not listed are programs that jax and Orbax compile themselves (barriers,
single operations), the fingerprint of the model that `init_from` names, and the
examples at the end of a run; the last two run on one device.
"""

import concurrent.futures
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.parallel import device_mesh, distributed, partition
from bert_jax.runtime import progress, workers
from bert_jax.trainer import optimizer, shortage, step, tuning
from bert_jax.trainer.task import Compute, Objective, Phase, split_by_length
from bert_jax.workdir import fingerprint

INITIALISE, PLACE, PLACE_KEY = 'initial state', 'placement', 'placement of keys'
RATES = 'learning rates'
FINGERPRINT, COUNT, VOTE = 'fingerprint', 'count of tokens', 'vote to stop'
GATHER, EVALUATE, TRAIN = 'gather for export', 'evaluation', 'training step'
GROUP = 'layout for checkpoints'

_NUMBER = jax.ShapeDtypeStruct((), jnp.int32)


class Program(NamedTuple):
  """A jitted function and the arguments that it is called with."""

  name: str  # one of the constants above
  jitted: Any
  # Trees of jax.ShapeDtypeStruct, with shardings if they are on the mesh.
  arguments: tuple
  phase: int | None = None
  length: int | None = None  # tokens per sequence

  @property
  def title(self) -> str:
    if self.phase is None:
      return self.name
    return f'{self.name} of phase {self.phase} at length {self.length}'

  def lower(self):
    """Traces and lowers it for the devices of its arguments."""
    return self.jitted.lower(*self.arguments)


def list_start(
  config: config_dict.ConfigDict, objective: Objective, mesh: Mesh
) -> list[Program]:
  """Returns the programs of a run that belong to no phase, for any mesh."""
  init, shapes, layout = plan_initial_state(config.optimizer, objective, mesh)
  state = jax.tree.map(_place, shapes, layout)
  key = jax.eval_shape(lambda: jax.random.key(0))
  run_key = jax.eval_shape(lambda: step.run_key(0, config.rng))
  schedule = optimizer.make_schedule(config.optimizer, config.phases)
  replicate = distributed.jit_put(device_mesh.replicate(mesh))
  listed = [
    Program(INITIALISE, init, (key,)),
    Program(PLACE, distributed.jit_put(layout.params), (shapes.params,)),
    Program(PLACE_KEY, replicate, (run_key,)),
    Program(RATES, step.jit_rates(schedule, mesh), (_NUMBER,)),
    Program(FINGERPRINT, fingerprint.of_leaves, (state,)),
  ]
  if writers := device_mesh.group_writers(mesh):
    groups = distributed.jit_put(partition.state_shardings(writers, shapes))
    listed.append(Program(GROUP, groups, (state,)))
  if _hosts(mesh) > 1:
    votes = distributed.votes(mesh)
    listed.append(Program(VOTE, distributed.largest_of, (votes,)))
    listed.append(Program(GATHER, replicate, (state.params,)))
  return listed


def list_phase(
  config: config_dict.ConfigDict, objective: Objective, mesh: Mesh, phase: Phase
) -> list[Program]:
  """Returns the programs of a phase, whose objective is from `tuning.tune`.

  The training step is the first of them, unless the phase has no steps.
  """
  _, shapes, layout = plan_initial_state(config.optimizer, objective, mesh)
  state = jax.tree.map(_place, shapes, layout)
  whole, rows = device_mesh.replicate(mesh), device_mesh.row_sharding(mesh)
  key = _place(jax.eval_shape(lambda: step.run_key(0, config.rng)), whole)
  rates = _place(jax.ShapeDtypeStruct((step.BLOCK,), jnp.float32), whole)
  batch, held_out = (
    jax.tree.map(lambda x: _place(x, rows), objective.batch_shapes(sizes, size))
    for sizes, size in (
      (phase, phase.batch_size),
      (objective.evaluate_as(phase), phase.eval_batch_size),
    )
  )
  train = step.jit_train(config.optimizer, objective, phase, mesh)
  evaluate = step.jit_eval(objective, mesh)
  listed = [(TRAIN, train, (state, batch, key, rates))] * bool(phase.steps)
  listed.append((EVALUATE, evaluate, (state.params, held_out)))
  if _hosts(mesh) > 1:
    listed.append((COUNT, distributed.sum_of, (batch['input_mask'],)))
  return [Program(*x, phase.number, phase.seq_length) for x in listed]


def plan_initial_state(
  fields: config_dict.ConfigDict, objective: Objective, mesh: Mesh
):
  """Returns (init, shapes, layout) of a run's state, with `optimizer.*`.

  They are jitted, key -> `step.TrainState`; its shapes; and their shardings.
  """
  tx = optimizer.make(fields)
  init = functools.partial(step.init_state, objective=objective, tx=tx)
  shapes = jax.eval_shape(init, jax.random.key(0))
  layout = partition.state_shardings(mesh, shapes)
  return jax.jit(init, out_shardings=layout), shapes, layout


def _place(x, placed):
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed)


def _hosts(mesh) -> int:
  return len({device.process_index for device in mesh.devices.flat})


class Outcome(NamedTuple):
  """The result of compiling a program: an executable, or an error."""

  program: Program
  executable: jax.stages.Compiled | None
  error: Exception | None

  @property
  def shortage(self) -> shortage.Shortage | None:
    """Returns the shortage of memory; None if that is not the problem."""
    return None if self.error is None else shortage.parse(self.error)

  @property
  def refused(self) -> bool:
    """Returns whether the compiler failed for a reason other than memory."""
    return self.error is not None and self.shortage is None


def compile_all(
  listed: list[Program], platform: str, say: Callable[[str], None]
) -> list[Outcome]:
  """Compiles programs, as many in parallel as the platform's compiler can."""
  # libtpu 0.0.42.1 sometimes overflows its stack and ends the process when it
  # compiles several programs for a TPU7x in parallel.
  at_once = 1 if platform == 'tpu' else workers.resolve(workers.ONE_PER_CORE)
  start, count = time.monotonic(), f'{len(listed)} programs'
  say(f'compiling {count} ...')
  with (
    concurrent.futures.ThreadPoolExecutor(at_once) as pool,
    progress.Progress(len(listed), 'programs', 'compiling', leave=False) as bar,
  ):
    known: dict[tuple, concurrent.futures.Future] = {}
    running = [pool.submit(_compile, program, known) for program in listed]
    for _ in concurrent.futures.as_completed(running):
      bar.update(1)
    results = [x.result() for x in running]
  slowest, seconds = max(results, key=lambda x: x[1])
  say(
    f'compiled {count} in {time.monotonic() - start:.0f} s, the '
    f'{slowest.program.title} in {seconds:.0f}'
  )
  return [outcome for outcome, _ in results]


def _compile(program: Program, known: dict) -> tuple[Outcome, float]:
  start, executable, error = time.monotonic(), None, None
  try:
    lowered = program.lower()
    # Phases may have the same program, which is compiled once.
    own: concurrent.futures.Future = concurrent.futures.Future()
    first = known.setdefault((program.name, lowered.as_text()), own)
    if first is own:
      try:
        own.set_result(lowered.compile())
      except Exception as problem:
        own.set_exception(problem)
    executable = first.result()
  except Exception as problem:  # lowering a kernel can raise any type
    error = problem
  return Outcome(program, executable, error), time.monotonic() - start


class Result(NamedTuple):
  """The programs of a phase, or of the run's start, and how they compute."""

  how: Compute
  outcomes: list[Outcome]


def compile_run(
  config: config_dict.ConfigDict,
  objective: Objective,
  mesh: Mesh,
  start: list[Program],
  phases: list[Phase],
  say: Callable[[str], None],
) -> dict[Phase | None, Result]:
  """Compiles the fastest programs of a run that the compiler accepts.

  If the compiler rejects a kernel or an option that `auto` chose, a warning is
  printed and the plain implementation is used, by all processes.

  Returns {phase: result}, a phase for each length of its batches, see
  `task.split_by_length`; the result of `start` has the key None.
  """
  how, platform = objective.how, mesh.devices.flat[0].platform
  # Training steps, which take longest, begin first.
  ways: dict[Phase | None, list[Compute]] = {
    p: tuning.list_candidates(how, objective.bert, *tuning.locate(mesh, p))
    for p in split_by_length(objective, phases)
  }
  ways[None] = [how]
  results: dict[Phase | None, Result] = {}
  while ways:
    listed = {
      p: list_phase(config, objective.computed_as(way, p), mesh, p)
      if p
      else start
      for p, (way, *_) in ways.items()
    }
    together = [program for own in listed.values() for program in own]
    outcomes = iter(compile_all(together, platform, say))
    for p, own in listed.items():
      results[p] = Result(ways[p][0], [next(outcomes) for _ in own])
    ways = {
      p: others
      for p, (_, *others) in ways.items()
      if p and others and _must_try_again(p, results[p].outcomes, say)
    }
  return results


def _must_try_again(phase, outcomes, say) -> bool:
  """Returns whether a program was refused, here or on another host; says so."""
  refused = [outcome for outcome in outcomes if outcome.refused]
  if not distributed.find_largest(bool(refused)):
    return False
  where = 'on another host'
  if refused:
    name, error = refused[0].program.name, refused[0].error
    where = f'({name}: {errors.first_line(error)})'
  say(
    'WARNING: cannot compile the fastest way to compute at length '
    f'{phase.seq_length} {where}. Trying a slower one; please report this.'
  )
  return True


def get_executables(outcomes: list[Outcome]) -> dict[str, jax.stages.Compiled]:
  """Returns {name: executable} of outcomes."""
  for outcome in outcomes:
    known = jax.errors.JaxRuntimeError, NotImplementedError
    if outcome.refused and not isinstance(outcome.error, known):
      raise outcome.error  # our own bug, or something the user asked for
    if outcome.error:
      raise errors.UserError(
        f'the {outcome.program.title} {describe_problem(outcome)}.'
      ) from outcome.error
  return {o.program.name: o.executable for o in outcomes}


def describe_problem(outcome: Outcome) -> str | None:
  """Returns why a program was not compiled and what to do; None if it was."""
  if outcome.error is None:
    return None
  of_phase = outcome.program.phase is not None
  if missing := outcome.shortage:
    return shortage.describe(missing.needed, missing.available, of_phase)
  advice = 'please report this'
  if of_phase:
    advice = (
      'try compute.attention=auto and compute.xla_options=auto, then '
      'compute.attention=xla'
    )
  line = errors.first_line(outcome.error)
  return f'is refused by the compiler: {line}; {advice}'
