"""What all phases of a run share, and when and how its state is saved."""

import dataclasses
import time
from typing import Any

import jax

from bert_jax import errors
from bert_jax.parallel import distributed, stop
from bert_jax.runtime import progress, signals
from bert_jax.runtime.pulse import Pulse
from bert_jax.train.meter import Meter
from bert_jax.train.task import Objective, Task
from bert_jax.train.trace import Profile
from bert_jax.workdir import log, status
from bert_jax.workdir.checkpoint import Checkpoints


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
  stop: stop.Stop
  pulse: Pulse


@dataclasses.dataclass(frozen=True)
class Report:
  """Who is told how a run goes.

  Attributes:
    log: `metrics.jsonl` and TensorBoard, on the first host.
    bar: the terminal.
    meter: sums up updates for both.
    status: `status.json`.
    profile: the trace, if asked for.
  """

  log: log.Log | log.Nothing
  bar: progress.Progress
  meter: Meter
  status: status.Status | status.Nothing
  profile: Profile


@dataclasses.dataclass(frozen=True)
class Run:
  """What all phases of a run share."""

  config: Any
  task: Task
  objective: Objective
  hosts: Hosts
  report: Report
  checkpoints: Checkpoints

  def must_save(self) -> bool:
    """Returns whether the last checkpoint is old, in the process that decides."""
    seconds = 60 * self.config.checkpoint.minutes
    waited = time.monotonic() - self.checkpoints.saved
    return distributed.is_first() and 0 < seconds <= waited

  def save(self, step: int, state: Any):
    """Saves the state of a step, unless that was done."""
    if self.checkpoints.newest == step:
      return

    def announce(mark):
      self.report.log.write('checkpoint', step, {'fingerprint': mark})
      self.report.log.flush()

    with self.report.meter.paused(), self.hosts.pulse.watching(False):
      mark = self.checkpoints.save(step, state, announce)
      self.report.bar.write(f'checkpoint at step {step:,}, fingerprint={mark}')

  def save_best(self, step: int, state: Any, score: float):
    """Saves the state if no evaluation before had as high a score."""
    best = self.checkpoints.best
    if best is None or score > best[1]:
      self.checkpoints.best = step, score
      self.save(step, state)

  def stop_if_asked(self, step: int, state: Any, ask: bool = True):
    """Saves the state and raises errors.Interrupted, after a signal.

    Args:
      ask: whether to ask the other hosts now, and wait for them.
    """
    if ask:
      self.hosts.stop.ask()
    if self.hosts.stop.signum is not None:
      self.report.meter.flush()
      self.save(step, state)
      raise errors.Interrupted(
        self.hosts.stop.signum, signals.RESUME, everywhere=True
      )
