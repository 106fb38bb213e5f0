"""Compiles the programs of a run; counts what is compiled later on."""

import concurrent.futures
import contextlib
import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.train import programs, tuning
from bert_jax.train import task as task_lib

# Of jax; recorded for what the cache holds, too.
_EVENT = '/jax/core/compile/backend_compile_duration'
_SECONDS_BETWEEN_LINES = 15
_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
_SIZE = r'([\d.]+)([KMGT]?)'
# The two ways in which the TPU compiler says that a program does not fit, and
# whether the bytes that it asks for have the arguments in them.
_NEEDED = (
  (re.compile(f'Used {_SIZE} of {_SIZE} hbm'), True),
  (
    re.compile(rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)'),
    False,
  ),
)


@dataclasses.dataclass(frozen=True)
class Shortage:
  """What the compiler says of a program that does not fit into memory.

  Attributes:
    needed: bytes of a device.
    available: bytes of a device that programs may use.
    with_arguments: whether `needed` includes the program's arguments.
  """

  needed: int
  available: int
  with_arguments: bool


@dataclasses.dataclass(frozen=True)
class Outcome:
  """A program, compiled or not.

  Attributes:
    program: what was compiled.
    executable: of jax; None if there was an error.
    error: of the compiler; None if there was none.
  """

  program: programs.Program
  executable: jax.stages.Compiled | None
  error: Exception | None

  @property
  def shortage(self) -> Shortage | None:
    """Returns what memory is missing; None if that is not the problem."""
    return None if self.error is None else parse_shortage(self.error)

  @property
  def refused(self) -> bool:
    """Says whether the compiler failed for another reason than memory."""
    return self.error is not None and self.shortage is None


def compile_all(
  listed: list[programs.Program], platform: str, say: Callable[[str], None]
) -> list[Outcome]:
  """Compiles programs, as many at a time as the compiler bears.

  Args:
    listed: of `programs`.
    platform: of the devices, such as 'tpu'.
    say: gets lines of progress.
  """
  # libtpu 0.0.42.1 now and then overflows a stack of its own when it compiles
  # several programs for a TPU7x at a time, and ends the process.
  at_once = 1 if platform == 'tpu' else os.cpu_count() or 1
  start, found = time.monotonic(), {}
  say(f'compiling {len(listed)} programs ...')
  with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
    waiting = {pool.submit(_compile, p): i for i, p in enumerate(listed)}
    while waiting:
      done, _ = concurrent.futures.wait(
        waiting, _SECONDS_BETWEEN_LINES, concurrent.futures.FIRST_COMPLETED
      )
      for future in done:
        i = waiting.pop(future)
        found[i], seconds = future.result()
        state = 'cannot compile' if found[i].error else 'compiled'
        say(f'{state} the {listed[i].title} ({seconds:.1f} s)')
      if not done:
        first, *rest = sorted(waiting.values())
        more = f' and {len(rest)} more' if rest else ''
        say(
          f'compiling the {listed[first].title}{more} ... '
          f'{time.monotonic() - start:.0f} s'
        )
  return [found[i] for i in range(len(listed))]


def _compile(program: programs.Program) -> tuple[Outcome, float]:
  start, executable, error = time.monotonic(), None, None
  try:
    executable = program.lower().compile()
  except errors.UserError:
    raise
  except Exception as problem:
    # Not only JaxRuntimeError: a kernel that cannot be lowered raises others.
    error = problem
  return Outcome(program, executable, error), time.monotonic() - start


@dataclasses.dataclass(frozen=True)
class Result:
  """The programs of a phase, or those that belong to none.

  Attributes:
    config: how they compute, of `tuning.resolve`; of no phase the run's own.
    outcomes: of each of them.
  """

  config: Any
  outcomes: list[Outcome]


def compile_run(
  config: config_dict.ConfigDict,
  objective: Callable[[Any], task_lib.Objective],
  mesh: Mesh,
  start: list[programs.Program],
  phases: list[task_lib.Phase],
  say: Callable[[str], None],
) -> dict[int | None, Result]:
  """Compiles the programs of a run, as fast ones as the compiler accepts.

  A kernel or an option that comes from `auto`, and that the compiler refuses,
  gives way to the plain path, with a loud line. All processes take the same.

  Args:
    config: the experiment.
    objective: of `task.Task`.
    mesh: of `device_mesh.make_mesh`; its devices need not be there.
    start: of `programs.list_start`, those that are wanted.
    phases: of `task.list_phases`, those that are wanted.
    say: gets lines of progress.

  Returns:
    {number of the phase: its result}, with that of `start` under None.

  Raises:
    errors.UserError: if the config does not suit the devices.
  """
  device = mesh.devices.flat[0]
  left = {
    p: tuning.list_candidates(config, device, p.seq_length) for p in phases
  }
  listed = {None: start, **_of_phases(left, objective, mesh, say)}
  found = {}
  while listed:
    outcomes = iter(compile_all(sum(listed.values(), []), device.platform, say))
    for phase, own in listed.items():
      done = [next(outcomes) for _ in own]
      if phase is None:
        found[None] = Result(config, done)
      else:
        found[phase.number] = Result(left[phase][0], done)
    left = {
      phase: others
      for phase, (_, *others) in left.items()
      if _must_try_again(phase, found[phase.number].outcomes, others, say)
    }
    listed = _of_phases(left, objective, mesh, say)
  return found


def _of_phases(left, objective, mesh, say):
  """Returns {phase: its programs} by the first config that is left of each."""
  for phase, (config, *_) in left.items():
    say(f'length {phase.seq_length}: {tuning.describe(config)}')
  return {
    phase: programs.list_phase(config, objective(config), mesh, phase)
    for phase, (config, *_) in left.items()
  }


def _must_try_again(phase, outcomes, others, say) -> bool:
  """Returns whether a program was refused, here or on another host; says so."""
  refused = [outcome for outcome in outcomes if outcome.refused]
  if not distributed.find_largest(bool(refused)) or not others:
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
  """Returns {name: executable} of outcomes.

  Raises:
    errors.UserError: if one was not compiled.
  """
  for outcome in outcomes:
    known = jax.errors.JaxRuntimeError, NotImplementedError
    if outcome.refused and not isinstance(outcome.error, known):
      raise outcome.error  # our own bug
    if outcome.error:
      raise errors.UserError(
        f'the {outcome.program.title} {describe_problem(outcome)}.'
      ) from outcome.error
  return {o.program.name: o.executable for o in outcomes}


def describe_problem(outcome: Outcome) -> str | None:
  """Says why a program was not compiled and what to do; None if it was."""
  if outcome.error is None:
    return None
  missing = outcome.shortage
  if missing:
    ways = 'use more or larger devices, or mesh.model'
    if outcome.program.phase is not None:
      ways = f'raise phases.accumulate, set compute.remat=layer, or {ways}'
    return (
      f'does not fit: it needs {missing.needed / 2**30:.2f} GiB of the '
      f'{missing.available / 2**30:.2f} GiB of a device; {ways}'
    )
  return (
    f'is refused by the compiler: {errors.first_line(outcome.error)}; try '
    'compute.attention=auto and compute.xla_options=auto, then '
    'compute.attention=xla'
  )


def parse_shortage(error: Exception) -> Shortage | None:
  """Reads what memory a program lacks; None if that is not the problem."""
  for pattern, with_arguments in _NEEDED:
    found = pattern.search(str(error))
    if found:
      needed, unit, available, available_unit = found.groups()
      return Shortage(
        round(float(needed) * _UNITS[unit]),
        round(float(available) * _UNITS[available_unit]),
        with_arguments,
      )
  return None


@dataclasses.dataclass
class Compiled:
  """Programs that a thread compiled.

  Attributes:
    count: how many.
    seconds: that this took.
  """

  count: int = 0
  seconds: float = 0.0


@contextlib.contextmanager
def counting():
  """Yields a `Compiled` that counts what this thread compiles meanwhile."""
  found, thread = Compiled(), threading.get_ident()

  def listen(event, seconds, **details):
    del details
    if event == _EVENT and threading.get_ident() == thread:
      found.count += 1
      found.seconds += seconds

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield found
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def use_cache():
  """Keeps compiled programs from one run to the next."""
  if not jax.config.jax_compilation_cache_dir:  # not the user's own
    directory = os.path.expanduser('~/.cache/bert_jax/xla')
    jax.config.update('jax_compilation_cache_dir', directory)
