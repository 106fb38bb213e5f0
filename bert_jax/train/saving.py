"""When and how a run's state is saved: by step, by time, the best, at the end.

A run here is `loop.Run`.
"""

import time
from typing import Any

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.runtime import signals


def is_due(run: Any) -> bool:
  """Returns whether the last checkpoint is old, in the process that decides."""
  seconds = 60 * run.config.checkpoint.minutes
  waited = time.monotonic() - run.checkpoints.saved
  return distributed.is_first() and 0 < seconds <= waited


def save(run: Any, step: int, state: Any):
  """Saves the state of a step, unless that was done."""
  if run.checkpoints.newest == step:
    return
  with run.report.meter.paused(), run.hosts.pulse.watching(False):

    def announce(mark):
      run.report.log.write('checkpoint', step, {'fingerprint': mark})
      run.report.log.flush()

    mark = run.checkpoints.save(step, state, announce)
    run.report.bar.write(f'checkpoint at step {step:,}, fingerprint={mark}')


def note_best(run: Any, step: int, state: Any, score: float):
  """Saves the state if no evaluation before had as high a score."""
  best = run.checkpoints.best
  if best is None or score > best[1]:
    run.checkpoints.best = step, score
    save(run, step, state)


def stop(run: Any, step: int, state: Any):
  """Saves the state and raises errors.Interrupted, after a signal."""
  run.report.meter.flush()
  save(run, step, state)
  raise errors.Interrupted(
    run.hosts.stop.signum, signals.RESUME, everywhere=True
  )
