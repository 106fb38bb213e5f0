"""Traces a few updates with jax's profiler, for xprof and TensorBoard."""

import contextlib

import jax

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.runtime import copies, progress
from bert_jax.train.meter import Meter
from bert_jax.workdir import paths

# Updates before the trace: the first ones also touch memory and fill queues.
_WARM_UP = 5


class Profile:
  """Traces updates once, in the first phase that is long enough.

  Only process 0 does, since all run the same program, and it owns `workdir`.

  Args:
    workdir: the run's directory; traces go to `profile/` in it.
    updates: how many to trace.
    meter: paused while the trace is started and written.
  """

  def __init__(
    self, workdir: str, updates: int, meter: Meter, bar: progress.Progress
  ):
    self._directory = paths.trace(workdir)
    self._updates = updates if distributed.is_first() else 0
    self._meter, self._bar = meter, bar
    self._span = range(0)
    self._tracing = False
    self._files = contextlib.ExitStack()

  def begin_phase(self, done: int, end: int):
    """Plans which of the updates done + 1, ..., end to trace."""
    start = done + _WARM_UP + 1
    self._span = range(start, min(start + self._updates, end + 1))

  @contextlib.contextmanager
  def update(self, number: int):
    """Marks the body as an update, and traces it if planned.

    Raises:
      errors.UserError: if the trace cannot be written.
    """
    if self._span and number == self._span[0]:
      self._start()
    with jax.profiler.StepTraceAnnotation('step', step_num=number):
      yield
    if self._tracing and number == self._span[-1]:
      with self._meter.paused():  # waits for the update
        self._stop()
      self._bar.write(
        f'profile of steps {self._span[0]:,} to {self._span[-1]:,} in '
        f'{self._directory}; to look at it: pip install xprof, '
        f'xprof --logdir {self._directory}'
      )
      self._updates = 0

  def _start(self):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # each call of Python would slow the loop
    with self._meter.paused(), self._reported():
      folder = self._files.enter_context(copies.publishing(self._directory))
      jax.profiler.start_trace(folder, profiler_options=options)
    self._tracing = True

  def _stop(self):
    self._tracing = False
    with self._reported(), self._files:
      jax.profiler.stop_trace()

  def _reported(self):
    return errors.explaining(
      f'cannot write a profile to {self._directory}',
      'free disk space or leave out --config.profile_steps, then resume.',
      (OSError, RuntimeError),
    )

  def __enter__(self):
    return self

  def __exit__(self, kind, *exc):
    if self._tracing:  # an error is being raised, which must not be replaced
      with contextlib.suppress(errors.UserError):
        self._stop()
    elif self._updates and kind is None:
      self._bar.write(
        f'no profile: it begins after {_WARM_UP} steps, and no phase had more'
      )
