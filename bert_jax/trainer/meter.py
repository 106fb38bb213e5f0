"""Turns sums of metrics into means, and those of steps into rows of the log.

It never waits for the device: the metrics of a step are read after the next
step was dispatched.
"""

import collections
import contextlib
import time
from collections.abc import Callable

import jax
import numpy as np
import tqdm

from bert_jax import errors
from bert_jax.hardware import chips
from bert_jax.runtime import progress
from bert_jax.trainer.task import Task
from bert_jax.workdir import log, status

_MAX_SKIPPED_IN_A_ROW = 20
_WINDOW, _LEAST = 100, 50  # steps to compare with, at most and at least
_FAR, _SMALL = 6.0, 0.05  # standard deviations, and share of the median
# Near 0, as in fine-tuning, every wrong row stands out: no rise of 0.2 is a jump,
# and no loss below 0.5.
_TINY, _LOW = 0.2, 0.5
_ROWS = 60  # of a run, at least: its curves show the warm-up and the fall
_SECONDS = 10.0  # after a row, before a line on the terminal asks for another
# Standard deviations of a normal distribution per median absolute deviation.
_PER_DEVIATION = 1.4826


def add(totals: dict[str, list[float]], sums: dict):
  """Adds {name: (sum, count)} to running totals."""
  for name, (total, count) in sums.items():
    entry = totals.setdefault(name, [0.0, 0.0])
    entry[0] += float(total)
    entry[1] += float(count)


def compute_means(
  totals: dict, losses: tuple[str, ...], derive: Callable[[dict], dict]
) -> dict[str, float]:
  """Returns {metric: mean} of {metric: (sum, count)}, with what the task derives.

  `loss` is the sum of those that are named in `losses`.
  """
  means = {
    name: float(total) / max(float(n), 1) for name, (total, n) in totals.items()
  }
  means['loss'] = sum(means[name] for name in losses)
  return {**means, **derive(means)}


class SpikeWatch:
  """Compares each step's loss with the losses of the 100 finite steps before.

  A spike exceeds their median by more than 6 standard deviations, estimated by
  their median absolute deviation, and by more than 5 %: of a million normal random
  numbers none does. Of consecutive spikes only the first counts; a loss that stays
  high is normal after 50 steps.
  """

  def __init__(self):
    self._losses = collections.deque(maxlen=_WINDOW)
    self._spiking = False

  def add(self, loss: float) -> dict[str, float] | None:
    """Adds the next step's loss; returns the evidence if it is a spike."""
    evidence = None
    if len(self._losses) >= _LEAST:
      before = np.array(self._losses)
      median = float(np.median(before))
      deviation = _PER_DEVIATION * float(np.median(np.abs(before - median)))
      rise = max(_FAR * deviation, _SMALL * abs(median), _TINY)
      limit = max(median + rise, _LOW)
      if loss > limit and not self._spiking:
        evidence = {'loss': loss, 'median': median, 'limit': limit}
      self._spiking = loss > limit
    self._losses.append(loss)
    return evidence


class Meter:
  """Collects metrics and writes rows, some of which the terminal is shown, too.

  A row sums up the steps since the row before. The terminal is shown the last one
  of the run's `steps`, those at multiples of `every`, and now and then one of those
  between, which are as many as a run needs to have 60.
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
    self._pending = None
    self.skipped_in_a_row = 0
    self._chip = chips.find(jax.devices()[0].device_kind)
    # On a CPU, more processes would share the cores with the updates.
    self._opened = self._shown = None  # when the first step was dispatched
    self._begin()

  def _begin(self):
    self._totals: dict[str, list[float]] = {}
    # Steps and what they cost; seconds of the device, and of pauses.
    self._costs: collections.Counter = collections.Counter()
    self._start = time.monotonic()

  def begin_phase(self):
    """Forgets the losses of another phase when it looks for spikes."""
    self.flush()
    self._watch = SpikeWatch()

  def add(self, step: int, metrics: dict, costs: dict):
    """Adds the metrics of `step.train_step`; reads the previous step's.

    Costs are `sequences`, `tokens` (without padding, maybe on the device) and
    `flops` of the step, and `waited`, seconds that the loop waited for its batch.
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
    device = time.monotonic() - start
    self._bar.update(1)
    costs['tokens'] = int(costs['tokens'])
    self._costs.update(costs | {'device': device, 'steps': 1})
    if metrics['finite']:
      self.skipped_in_a_row = 0
      add(self._totals, metrics['sums'])
      self._find_spike(step, metrics)
      self._grad_norm = float(metrics['grad_norm'])
    else:
      self._skip(step, metrics)
    shown = step % self._every == 0 or step == self._steps
    due = progress.is_due(self._opened, self._shown)
    slow = self._count_seconds() >= _SECONDS
    if shown or self._costs['steps'] >= self._most or (due and slow):
      self._write(step, metrics, shown or due)
      self._begin()

  def _count_seconds(self) -> float:
    """Returns the seconds since the row before, without pauses."""
    return max(time.monotonic() - self._start - self._costs['paused'], 1e-9)

  def _skip(self, step, metrics):
    self._costs['skipped'] += 1
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
    if spike := self._watch.add(self._compute_means(metrics['sums'])['loss']):
      self._log.write('spike', step, spike)
      self._bar.write(
        f'step {step}: loss {spike["loss"]:.3f}, but the median before is '
        f'{spike["median"]:.3f}'
      )

  def _compute_means(self, sums) -> dict[str, float]:
    return compute_means(sums, self._task.objective.losses, self._task.derive)

  @contextlib.contextmanager
  def paused(self):
    """Excludes the time of the body (evaluation, saving) from the speed."""
    self.flush()
    start = time.monotonic()
    yield
    self._costs['paused'] += time.monotonic() - start

  def _write(self, step, metrics, shown):
    costs, seconds = self._costs, self._count_seconds()
    flops = costs['flops'] / seconds
    row = {
      'learning_rate': float(metrics['learning_rate']),
      'skipped': costs['skipped'],
      'sequences_per_second': costs['sequences'] / seconds,
      'tokens_per_second': costs['tokens'] / seconds,
      'model_tflops': flops / 1e12,
      # Shares of the time; the rest is waiting for the devices.
      'data_wait': costs['waited'] / seconds,
      'host_work': (seconds - costs['waited'] - costs['device']) / seconds,
    }
    means = {}
    if self._totals:  # else every step was skipped
      means = self._compute_means(self._totals)
      row |= {**means, 'grad_norm': self._grad_norm}
      self._status.note(loss=means['loss'])
    if chip := self._chip:
      row['mfu'] = flops / (chip.flops / chip.devices * jax.device_count())
    self._log.write('train', step, row)
    if shown:
      self._show(step, means, row)

  def _show(self, step, means, row):
    self._shown = time.monotonic()
    speed = self._costs['steps'] / self._count_seconds()
    clock = tqdm.tqdm.format_interval((self._steps - step) / speed)
    self._bar.write(
      f'step {step:,}/{self._steps:,} | {self._task.word(means)} | '
      f'lr {row["learning_rate"]:.1e} | '
      f'{row["sequences_per_second"]:,.0f} seq/s | '
      f'data wait {row["data_wait"]:.1%} | {clock} left'
    )
