"""Compiles the programs of a run, and counts later compilations."""

import collections
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
from bert_jax.runtime import progress
from bert_jax.train import programs, tuning
from bert_jax.train import task as task_lib

# An event of jax, which also records it when a program is in the cache.
_EVENT = '/jax/core/compile/backend_compile_duration'
_SECONDS = 1  # between looks at what is done
_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40}
_SIZE = r'([\d.]+)([KMGT]?)'
# The TPU compiler's two messages for a program that does not fit, and whether
# the bytes that they name include the program's arguments.
_NEEDED = (
  (re.compile(f'Used {_SIZE} of {_SIZE} hbm'), True),
  (
    re.compile(rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)'),
    False,
  ),
)


@dataclasses.dataclass(frozen=True)
class Shortage:
  """Memory that a program needs, if the compiler says that it does not fit.

  Attributes:
    needed: bytes per device.
    available: bytes per device that programs may use.
    with_arguments: whether `needed` includes the program's arguments.
  """

  needed: int
  available: int
  with_arguments: bool


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of compiling a program.

  Attributes:
    program: the program.
    executable: jax's executable; None if there was an error.
    error: the compiler's error; None if there was none.
  """

  program: programs.Program
  executable: jax.stages.Compiled | None
  error: Exception | None

  @property
  def shortage(self) -> Shortage | None:
    """Returns the shortage of memory; None if that is not the problem."""
    return None if self.error is None else parse_shortage(self.error)

  @property
  def refused(self) -> bool:
    """Returns whether the compiler failed for a reason other than memory."""
    return self.error is not None and self.shortage is None


def compile_all(
  listed: list[programs.Program], platform: str, say: Callable[[str], None]
) -> list[Outcome]:
  """Compiles programs, as many in parallel as the compiler supports.

  Args:
    listed: the programs.
    platform: platform of the devices, such as 'tpu'.
  """
  # libtpu 0.0.42.1 sometimes overflows its stack and ends the process when it
  # compiles several programs for a TPU7x in parallel.
  at_once = 1 if platform == 'tpu' else os.cpu_count() or 1
  start, count = time.monotonic(), f'{len(listed)} programs'
  say(f'compiling {count} ...')
  with (
    concurrent.futures.ThreadPoolExecutor(at_once) as pool,
    progress.Progress(len(listed), 'programs', 'compiling', leave=False) as bar,
  ):
    running = [pool.submit(_compile, program) for program in listed]
    left = set(running)
    while left:
      done, left = concurrent.futures.wait(
        left, _SECONDS, concurrent.futures.FIRST_COMPLETED
      )
      bar.update(len(done))
    found = [x.result() for x in running]
  slowest, seconds = max(found, key=lambda x: x[1])
  say(
    f'compiled {count} in {time.monotonic() - start:.0f} s, the '
    f'{slowest.program.title} in {seconds:.0f}'
  )
  return [outcome for outcome, _ in found]


def _compile(program: programs.Program) -> tuple[Outcome, float]:
  start, executable, error = time.monotonic(), None, None
  try:
    executable = program.lower().compile()
  except errors.UserError:
    raise
  except Exception as problem:
    # Not only JaxRuntimeError: lowering a kernel can raise other types.
    error = problem
  return Outcome(program, executable, error), time.monotonic() - start


@dataclasses.dataclass(frozen=True)
class Result:
  """The compiled programs of a phase, or those of the run's start.

  Attributes:
    config: the phase's config from `tuning.resolve`, or that of the run.
    outcomes: the result for each program.
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
) -> dict[task_lib.Phase | None, Result]:
  """Compiles the fastest programs of a run that the compiler accepts.

  If the compiler rejects a kernel or an option that `auto` chose, a warning is
  printed and the plain implementation is used. All processes use the same.

  Args:
    objective: (config) -> Objective, see `task.Task`.
    mesh: axes (data, model), see `device_mesh.make_mesh`; may be of absent
      devices.
    start: programs from `programs.list_start`, all or some.
    phases: phases from `task.list_phases`, all or some.

  Returns:
    {phase: result}, a phase for each length of its batches, see
    `task.split_by_length`; the result of `start` has the key None.

  Raises:
    errors.UserError: if the config does not suit the devices.
  """
  device = mesh.devices.flat[0]
  left = {
    p: tuning.list_candidates(config, device, p.seq_length)
    for p in task_lib.split_by_length(objective(config), phases)
  }
  listed = {None: start, **_of_phases(left, objective, mesh, say)}
  found: dict[task_lib.Phase | None, Result] = {}
  while listed:
    outcomes = iter(compile_all(sum(listed.values(), []), device.platform, say))
    for phase, own in listed.items():
      done = [next(outcomes) for _ in own]
      own_config = config if phase is None else left[phase][0]
      found[phase] = Result(own_config, done)
    left = {
      phase: others
      for phase, (_, *others) in left.items()
      if _must_try_again(phase, found[phase].outcomes, others, say)
    }
    listed = _of_phases(left, objective, mesh, say)
  return found


def _of_phases(left, objective, mesh, say):
  """Returns {phase: programs} for the first remaining config of each phase."""
  ways = collections.defaultdict(list)
  for phase, (config, *_) in left.items():
    ways[tuning.describe(config)].append(str(phase.seq_length))
  for way, lengths in ways.items():
    say(f'length {", ".join(reversed(lengths))}: {way}')
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
  """Returns why a program was not compiled and what to do; None if it was."""
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
  """Reads a shortage of memory from an error; None if it is another error."""
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
    count: number of programs.
    seconds: total compile time.
  """

  count: int = 0
  seconds: float = 0.0


@contextlib.contextmanager
def counting():
  """Yields a `Compiled` that counts what this thread compiles in the body."""
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
