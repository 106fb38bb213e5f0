"""What all phases of a run share: its plan, its reports, how it stops."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.runtime import hang, progress, signals, storage
from bert_jax.trainer.meter import Meter
from bert_jax.trainer.task import Phase, Task
from bert_jax.workdir import log, paths, status
from bert_jax.workdir.checkpoint import Checkpoints


class Stop:
  """Makes all processes stop, or save, at the same step.

  Attributes:
    save: whether the processes have agreed to save a checkpoint now.
    timer: ends this process if an update or a batch of evaluation hangs.
  """

  def __init__(self, own: signals.Stop):
    self._own = own
    self.timer = hang.Timer()
    self._agreed, self._vote, self.save = 0, None, False

  @property
  def signum(self) -> int | None:
    """The largest signal that any process received, once all have agreed."""
    if jax.process_count() == 1:
      return self._own.signum
    return self._agreed or None

  def ask(self):
    """Asks all processes whether to stop, and waits for the answer."""
    self._agreed = distributed.find_largest(
      self._agreed or self._own.signum or 0
    )

  def ask_ahead(self, mesh: Mesh, due: bool = False):
    """Asks all processes, and reads the answer to the previous call.

    That answer was computed after the previous update, so it takes no waiting.
    """
    if jax.process_count() == 1:
      self.save = due
      return
    before, of_mesh = self._vote, distributed.votes(mesh)
    vote = 2 * (self._own.signum or 0) + due
    mine = np.full(jax.local_device_count(), vote, np.int32)
    # jax's guard takes this explicit transfer for implicit.
    with jax.transfer_guard_host_to_device('allow'):
      votes = jax.make_array_from_process_local_data(of_mesh.sharding, mine)
    self._vote = distributed.largest_of(votes)
    if before is not None:
      self._agreed, save = divmod(int(jax.device_get(before)), 2)
      self.save = bool(save)


# Updates before the trace: the first ones also touch memory and fill queues.
_WARM_UP = 5


class Profile:
  """Traces so many updates after `done`, in process 0: all run the same program."""

  def __init__(
    self,
    workdir: str,
    updates: int,
    done: int,
    meter: Meter,
    bar: progress.Progress,
  ):
    self._directory, self._newest = paths.trace(workdir), done
    first = done + _WARM_UP + 1
    self._span = range(first, first + updates * distributed.is_first())
    self._meter, self._bar = meter, bar
    self._trace = contextlib.ExitStack()

  @contextlib.contextmanager
  def update(self, number: int):
    """Marks the body as an update, and traces it if planned."""
    if self._span and number == self._span[0]:
      with self._meter.paused():
        self._trace.enter_context(_tracing(self._directory))
    self._newest = number
    with jax.profiler.StepTraceAnnotation('step', step_num=number):
      yield
    if self._span and number == self._span[-1]:
      self._stop()

  def _stop(self):
    with self._meter.paused():  # waits for the update
      self._trace.close()
    self._bar.write(
      f'profile of steps {self._span[0]:,} to {self._newest:,} in '
      f'{self._directory}; to look at it: pip install xprof, '
      f'xprof --logdir {self._directory}'
    )
    self._span = range(0)

  def __enter__(self):
    return self

  def __exit__(self, kind, *exc):
    if self._span and self._newest >= self._span[0]:
      # An error that is being raised must not be replaced.
      with contextlib.suppress(*[OSError] * (kind is not None)):
        self._stop()
    elif self._span and kind is None:
      self._bar.write(f'no profile: it begins after {_WARM_UP} steps')


@contextlib.contextmanager
def _tracing(directory):
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0  # each call of Python would slow the loop
  storage.make_folder(directory)
  with contextlib.closing(log.Mirror(directory)) as mirror:
    with jax.profiler.trace(mirror.folder, profiler_options=options):
      yield


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a run does when; counts are updates."""

  phases: list[Phase]
  key: jax.Array  # of the run, on the mesh
  rates: Callable[[int], jax.Array]  # (block) -> `step.jit_rates`
  eval_every: int  # 0 is only at the end
  save_every: int
  save_minutes: float  # after which one is saved in addition; 0 is never
  keep_best: bool  # by the first of `Task.score`; otherwise the last state
  log_every: int
  profiled: int  # updates to trace

  @property
  def steps(self) -> int:
    return sum(phase.steps for phase in self.phases)

  def changes_length(self, number: int) -> bool:
    """Returns whether a phase follows one of another length.

    That is evaluated before and after: losses at different lengths do not compare.
    """
    lengths = [phase.seq_length for phase in self.phases]
    return 0 < number < len(lengths) and lengths[number - 1] != lengths[number]


class Report(NamedTuple):
  """Where a run says how it is doing."""

  log: log.Log | log.Nothing
  bar: progress.Progress
  status: status.Status
  meter: Meter
  profile: Profile


@dataclasses.dataclass(frozen=True)
class Run:
  """What all phases of a run share; the axes of its mesh are (data, model)."""

  task: Task
  mesh: Mesh
  plan: Plan
  checkpoints: Checkpoints
  report: Report
  stop: Stop

  def ask_ahead(self):
    """Asks all processes whether to stop, or to save since minutes have gone."""
    seconds = 60 * self.plan.save_minutes
    waited = time.monotonic() - self.checkpoints.saved
    due = distributed.is_first() and 0 < seconds <= waited
    if due:  # asked once, though the answer comes when the next vote is made
      self.checkpoints.saved = time.monotonic()
    self.stop.ask_ahead(self.mesh, due)

  def save(self, step: int, state: Any):
    """Saves the state of a step, unless that was done.

    It is printed unless a held-out loss of that step will be.
    """
    if self.checkpoints.newest == step:
      return
    every, report = self.plan.eval_every, self.report

    def announce(mark):
      report.log.write('checkpoint', step, {'fingerprint': mark})
      report.log.flush()

    with report.meter.paused(), self.stop.timer.paused():
      mark = self.checkpoints.save(step, state, announce)
      if not (every and step % every == 0 and step < self.plan.steps):
        report.bar.write(f'checkpoint at step {step:,}, fingerprint={mark}')

  def save_best(self, step: int, state: Any, score: float):
    """Saves the state if no evaluation before had as high a score."""
    best = self.checkpoints.best
    if best is None or score > best[1]:
      self.checkpoints.best = step, score
      self.save(step, state)

  def stop_if_asked(self, step: int, state: Any, ask: bool = True):
    """Saves and raises errors.Interrupted after a signal; `ask` asks hosts."""
    if ask:
      self.stop.ask()
    if self.stop.signum is not None:
      self.report.meter.flush()
      self.save(step, state)
      raise errors.Interrupted(self.stop.signum, everywhere=True)
