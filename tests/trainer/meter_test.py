"""Tests of turning metrics into means and rows, and of spikes."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.trainer import meter
from bert_jax.workdir.status import Status
from tests import training


def test_means_are_over_all_batches_and_losses_are_added():
  totals = {}
  meter.add(totals, {'a': (6.0, 2.0), 'b': (1.0, 4.0)})
  meter.add(totals, {'a': (3.0, 1.0), 'b': (2.0, 0.0)})
  means = meter.compute_means(
    totals, ('a', 'b'), lambda found: {'twice': 2 * found['a']}
  )
  assert means == {'a': 3.0, 'b': 0.75, 'loss': 3.75, 'twice': 6.0}


class Log:
  def __init__(self):
    self.rows = []

  def write(self, kind, step, values):
    self.rows.append((kind, step, values))


@pytest.fixture
def clock(monkeypatch):
  now = [100.0]
  monkeypatch.setattr(meter.time, 'monotonic', lambda: now[0])
  return now


class OnDevice:
  """True, as soon as the device had two seconds."""

  def __init__(self, clock):
    self._clock = clock

  def __array__(self, dtype=None, copy=None):
    self._clock[0] += 2.0
    return np.array(True)


def make_metrics(loss, finite=True):
  return {
    'sums': {'mlm_loss': (loss * 4, 4.0), 'mlm_accuracy': (2.0, 4.0)},
    'grad_norm': 0.5 if finite else float('nan'),
    'learning_rate': 1e-3,
    'finite': finite,
  }


COSTS = {'sequences': 8, 'tokens': 40, 'flops': 1e12, 'waited': 1.0}


def make_meter(rows, bar, every, steps=6000):
  task = training.make_task(training.small_config(objective__nsp=False))
  return meter.Meter(rows, bar, Status(), every, steps, task)


def add_quickly(found, clock, steps):
  """Adds steps that take a tenth of a second each."""
  for step in steps:
    clock[0] += 0.1
    found.add(step, make_metrics(3.0), COSTS)
  found.flush()


def test_a_row_says_what_the_time_went_for(clock):
  rows, bar = Log(), training.Bar()
  found = make_meter(rows, bar, 2)
  for step in (1, 2):
    clock[0] += 5.0  # one of them waiting for a batch
    found.add(step, make_metrics(3.0, OnDevice(clock)), COSTS)
  assert rows.rows == []
  with found.paused():  # waits for the device, and is not counted itself
    clock[0] += 50.0
  ((kind, step, row),) = rows.rows
  assert (kind, step) == ('train', 2)
  # 14 seconds: 2 for batches, 4 for the device, 8 of work.
  assert row['data_wait'] == pytest.approx(2 / 14)
  assert row['host_work'] == pytest.approx(8 / 14)
  assert row['sequences_per_second'] == pytest.approx(16 / 14)
  assert row['mlm_loss'] == 3.0
  assert 'data wait 14.3%' in bar.lines[-1]


def test_the_terminal_is_told_before_a_row_is_due(clock):
  bar = training.Bar()
  rows = Log()
  found = make_meter(rows, bar, 240, 240)  # four steps a row
  with found.paused():
    clock[0] += 100.0  # compiling, which says nothing of the speed
  for step in (1, 2, 3, 4):
    clock[0] += 5.0  # and 2 to read the metrics of the step before
    found.add(step, make_metrics(3.0, OnDevice(clock)), COSTS)
  [line] = bar.lines  # two steps of 8 rows in 19 seconds, and 238 more to go
  assert line.startswith('step 2/240 |') and line.endswith('| 37:41 left')
  assert [step for _, step, _ in rows.rows] == [2]


@pytest.mark.parametrize('every', [1425, 50])
def test_a_run_has_sixty_rows_and_few_lines(clock, every, monkeypatch):
  monkeypatch.setattr(meter.jax, 'device_get', lambda x: x)  # which is slow
  rows, bar = Log(), training.Bar()
  found = make_meter(rows, bar, every, 8400)  # that take 14 minutes
  add_quickly(found, clock, range(1, 8401))
  steps = [step for _, step, _ in rows.rows]
  assert len(steps) >= 60 and steps[0] <= 140 and steps[-1] == 8400
  assert max(np.diff(steps)) <= min(every, 140)
  assert min(np.diff(steps)) >= 50  # none has the noise of a few batches
  assert set(range(every, 8400, every)) <= set(steps)
  assert len(bar.lines) <= 20 or every == 50


def test_the_last_update_has_a_row_though_none_is_due(clock):
  rows = Log()
  found = make_meter(rows, training.Bar(), 3, 302)
  add_quickly(found, clock, range(295, 303))
  assert [step for _, step, _ in rows.rows] == [297, 300, 302]


def test_a_spike_is_logged():
  rows, bar = Log(), training.Bar()
  found = make_meter(rows, bar, 1000)
  for step in range(11, 71):
    found.add(step, make_metrics(5.0 + step % 3 / 10), COSTS)
  found.add(71, make_metrics(9.0), COSTS)
  found.flush()
  ((kind, step, row),) = rows.rows
  assert (kind, step, row['loss']) == ('spike', 71, 9.0)
  (line,) = bar.lines
  assert line == 'step 71: loss 9.000, but the median before is 5.100'


def test_losses_of_another_phase_are_not_compared():
  rows = Log()
  found = make_meter(rows, training.Bar(), 1000)
  for step in range(11, 71):
    found.add(step, make_metrics(5.0), COSTS)
  found.begin_phase()
  for step in range(71, 110):
    found.add(step, make_metrics(9.0), COSTS)
  found.flush()
  assert rows.rows == []


def test_twenty_skipped_updates_in_a_row_stop_the_run():
  found = make_meter(Log(), training.Bar(), 1000)
  with pytest.raises(errors.UserError, match='20 updates in a row.*step 25'):
    for step in range(6, 30):
      found.add(step, make_metrics(5.0, finite=False), COSTS)


def test_a_skipped_update_is_logged():
  rows, bar = Log(), training.Bar()
  found = make_meter(rows, bar, 1000)
  found.add(3, make_metrics(5.0, finite=False), COSTS)
  found.flush()
  assert rows.rows == [('skipped', 3, {'grad_norm': 'nan'})]
  assert bar.lines == ['step 3: gradient norm nan, update skipped (1 in a row)']


def make_losses(steps, noise=0.1, seed=0):
  """Returns losses that fall from 10 to 6, as those of a run do."""
  falling = 6 + 4 * np.exp(-np.arange(steps) / 100)
  return falling + noise * np.random.default_rng(seed).standard_normal(steps)


def change(losses, changes):
  """Returns losses to which something was added, by {place: how much}."""
  for where, much in changes.items():
    losses[where] += much
  return losses


@pytest.mark.parametrize(
  'losses, spikes',
  [
    (make_losses(5_000), []),
    (change(make_losses(600), {300: 1.0, 500: 1.0}), [300, 500]),
    # A fourth of all: earlier ones do not hide later ones.
    (
      change(make_losses(300), dict.fromkeys(range(150, 300, 4), 20.0)),
      [*range(150, 300, 4)],
    ),
    # What stays high is one spike.
    (change(make_losses(400), dict.fromkeys(range(200, 400), 3.0)), [200]),
    (change(make_losses(100), {49: 50.0}), []),  # too early to tell
    (change(np.full(100, 5.0), {80: 0.2, 90: 0.3}), [90]),  # by 4 and 6 %
    # Near 0, batches with a wrong row, late in fine-tuning.
    (change(np.full(200, 0.009), {150: 0.111, 160: 0.491, 170: 0.6}), [170]),
  ],
)
def test_spikes_are_found_where_they_are(losses, spikes):
  watch = meter.SpikeWatch()
  assert [i for i, x in enumerate(losses) if watch.add(x)] == spikes
