"""Turns the metrics of single steps into rows of the log; notices spikes.

It never waits for the device: the metrics of a step are read after the next
step was dispatched.
"""

import collections
import contextlib
import time

import jax
import numpy as np
import tqdm

from bert_jax import errors
from bert_jax.hardware import chips
from bert_jax.runtime import progress
from bert_jax.trainer import evaluate
from bert_jax.trainer.task import Task
from bert_jax.workdir import log, status

_MAX_SKIPPED_IN_A_ROW = 20
_WINDOW = 100  # steps
_LEAST = 50  # steps before the first decision
_FAR = 6.0  # standard deviations
# Of the median; a smaller rise is not a jump, however quiet the loss is.
_SMALL = 0.05
# Nor is a rise of 0.2: near 0, as in fine-tuning, every wrong row stands out.
_TINY = 0.2
_LOW = 0.5  # nor is a loss below that, as of one wrong row in a batch of 16
_LONG_WAIT = 0.1  # share of the time
_ROWS = 60  # of a run, at least: its curves show the warm-up and the fall
_SECONDS = 10.0  # after a row, before a line on the terminal asks for another
# Standard deviations of a normal distribution per median absolute deviation.
_PER_DEVIATION = 1.4826


class SpikeWatch:
  """Compares each step's loss with the losses of the 100 finite steps before.

  A loss is a spike if it exceeds their median by more than 6 standard
  deviations, estimated by their median absolute deviation, by more than 5 % of
  the median and by more than 0.2, and if it is above 0.5: of a million normal
  random numbers none is. Of consecutive spikes only the first counts; a loss
  that stays high is normal after 50 steps.
  """

  def __init__(self):
    self._losses = collections.deque(maxlen=_WINDOW)
    self._spiking = False

  def add(self, loss: float) -> dict[str, float] | None:
    """Adds the next step's loss; returns the evidence if it is a spike."""
    found = None
    if len(self._losses) >= _LEAST:
      before = np.array(self._losses)
      median = float(np.median(before))
      deviation = _PER_DEVIATION * float(np.median(np.abs(before - median)))
      rise = max(_FAR * deviation, _SMALL * abs(median), _TINY)
      limit = max(median + rise, _LOW)
      if loss > limit and not self._spiking:
        found = {'loss': loss, 'median': median, 'limit': limit}
      self._spiking = loss > limit
    self._losses.append(loss)
    return found


class Meter:
  """Collects metrics and writes rows, some of which the terminal is shown, too.

  A row sums up the steps since the row before. The terminal is shown the last one,
  those at multiples of `every`, and now and then one of those between, which are
  as many as a run needs to have 60.

  Args:
    status: is told the loss of each row.
    every: steps between rows, at most.
    steps: of the run.
  """

  def __init__(
    self,
    log: log.Log | log.Nothing,
    bar: progress.Progress,
    status: status.Status,
    every: int,
    steps: int,
    task: Task,
  ):
    self._log, self._bar, self._status = log, bar, status
    self._task = task
    self._every, self._steps = every, steps
    parts = -(-every // max(steps // _ROWS, 1))
    self._most = -(-every // parts)  # steps of a row, about equally many
    self._watch = SpikeWatch()
    self._is_first = True  # of a phase, whose first batch is waited for
    self._pending = None
    self.skipped_in_a_row = 0
    self._chip = chips.find(jax.devices()[0].device_kind)
    # On a CPU, more processes would share the cores with the updates.
    self._advises = jax.devices()[0].platform != 'cpu'
    self._opened = self._shown = None  # when the first step was dispatched
    self._begin()

  def _begin(self):
    self._totals: dict[str, list[float]] = {}
    self._sequences = self._tokens = self._count = self._skipped = 0
    self._flops = self._waited = self._device = self._paused = 0.0
    self._start = time.monotonic()

  def begin_phase(self):
    """Forgets the losses of another phase when it looks for spikes."""
    self.flush()
    self._watch = SpikeWatch()
    self._is_first = True

  def add(self, step: int, metrics: dict, costs: dict):
    """Adds the metrics of `step` (on the device); reads the previous step's.

    Args:
      metrics: from `step.train_step`.
      costs: `sequences`, `tokens` (without padding, maybe on the device) and
        `flops` of the step, and `waited`, seconds that the loop waited for its
        batch.
    """
    self.flush()
    if self._opened is None:
      self._opened = self._shown = time.monotonic()
    self._pending = step, metrics, costs

  def flush(self):
    """Reads the pending metrics; writes a row if one is due."""
    if self._pending is None:
      return
    step, metrics, costs = self._pending
    self._pending = None
    start = time.monotonic()
    metrics, costs = jax.device_get((metrics, costs))
    self._device += time.monotonic() - start
    self._bar.update(1)
    self._count += 1
    self._sequences += costs['sequences']
    self._tokens += int(costs['tokens'])
    self._flops += costs['flops']
    self._waited += costs['waited']
    if metrics['finite']:
      self.skipped_in_a_row = 0
      evaluate.add(self._totals, metrics['sums'])
      self._find_spike(step, metrics)
      self._grad_norm = float(metrics['grad_norm'])
    else:
      self._skip(step, metrics)
    shown = step % self._every == 0 or step == self._steps
    due = progress.is_due(self._opened, self._shown)
    slow = time.monotonic() - self._start - self._paused >= _SECONDS
    if shown or self._count >= self._most or (due and slow):
      self._write(step, metrics, shown or due)
      self._begin()

  def _skip(self, step, metrics):
    self._skipped += 1
    self.skipped_in_a_row += 1
    grad_norm = float(metrics['grad_norm'])
    # As text: JSON has no NaN.
    self._log.write('skipped', step, {'grad_norm': str(grad_norm)})
    self._bar.write(
      f'step {step}: gradient norm {grad_norm}, update skipped '
      f'({self.skipped_in_a_row} in a row)'
    )
    if self.skipped_in_a_row >= _MAX_SKIPPED_IN_A_ROW:
      raise errors.UserError(
        f'{self.skipped_in_a_row} updates in a row had a non-finite loss or '
        f'gradient, the last at step {step}; the newest checkpoint is from '
        'before them. Use another --workdir with a lower '
        'optimizer.learning_rate, or look at the data.'
      )

  def _find_spike(self, step, metrics):
    spike = self._watch.add(self._compute_means(metrics['sums'])['loss'])
    if spike is None:
      return
    self._log.write('spike', step, spike)
    self._bar.write(
      f'step {step}: loss {spike["loss"]:.3f}, but the median before is '
      f'{spike["median"]:.3f}'
    )

  def _compute_means(self, sums) -> dict[str, float]:
    losses = self._task.objective.losses
    return evaluate.compute_means(sums, losses, self._task.derive)

  @contextlib.contextmanager
  def paused(self):
    """Excludes the time of the body (evaluation, saving) from the speed."""
    self.flush()
    start = time.monotonic()
    yield
    self._paused += time.monotonic() - start

  def _write(self, step, metrics, shown):
    means, row = self._find_row(metrics)
    self._log.write('train', step, row)
    if means:
      self._status.note(loss=means['loss'])
    if shown:
      self._show(step, means, row)
    late = row['data_wait'] > _LONG_WAIT and not self._is_first and shown
    self._is_first = False
    if late and self._advises:
      self._advises = False
      self._bar.write(
        f'the devices waited for batches {row["data_wait"]:.0%} of the time; '
        'stop, raise data.loader_workers (-1: a process per core) and start '
        'again: the run goes on, with the same batches'
      )

  def _find_row(self, metrics):
    seconds = max(time.monotonic() - self._start - self._paused, 1e-9)
    flops = self._flops / seconds
    row = {
      'learning_rate': float(metrics['learning_rate']),
      'skipped': self._skipped,
      'sequences_per_second': self._sequences / seconds,
      'tokens_per_second': self._tokens / seconds,
      'model_tflops': flops / 1e12,
      # Shares of the time; the rest is waiting for the devices.
      'data_wait': self._waited / seconds,
      'host_work': (seconds - self._waited - self._device) / seconds,
    }
    means = {}
    if self._totals:  # else every step was skipped
      means = self._compute_means(self._totals)
      row |= {**means, 'grad_norm': self._grad_norm}
    chip = self._chip
    if chip:
      row['mfu'] = flops / (chip.flops / chip.devices * jax.device_count())
    return means, row

  def _show(self, step, means, row):
    self._shown = time.monotonic()
    seconds = self._sequences / max(row['sequences_per_second'], 1e-9)
    left = (self._steps - step) * seconds / max(self._count, 1)
    clock = tqdm.tqdm.format_interval(left)
    self._bar.write(
      f'step {step:,}/{self._steps:,} | {self._task.word(means)} | '
      f'lr {row["learning_rate"]:.1e} | '
      f'{row["sequences_per_second"]:,.0f} seq/s | '
      f'data wait {row["data_wait"]:.1%} | {clock} left'
    )
