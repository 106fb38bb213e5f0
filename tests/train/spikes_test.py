"""Which losses count as spikes."""

import numpy as np
import pytest

from bert_jax.train import spikes


def find(losses):
  """Returns the indices of the losses that are spikes."""
  watch = spikes.Watch()
  return [i for i, loss in enumerate(losses) if watch.add(loss)]


def make_losses(steps, noise=0.1, seed=0):
  """Returns losses that fall from 10 to 6, as those of a run do."""
  falling = 6 + 4 * np.exp(-np.arange(steps) / 100)
  return falling + noise * np.random.default_rng(seed).standard_normal(steps)


def test_a_run_without_spikes_has_none():
  assert find(make_losses(20_000)) == []


def test_a_jump_is_found_at_its_step():
  losses = make_losses(600)
  losses[[300, 500]] += 1.0
  assert find(losses) == [300, 500]


def test_the_limit_can_be_computed_by_hand():
  watch = spikes.Watch()
  for loss in [5.0, 5.1, 5.2] * 20:
    assert watch.add(loss) is None
  found = watch.add(9.0)
  # The median deviation of 5.0, 5.1 and 5.2 from 5.1 is 0.1.
  assert (found.loss, found.median) == (9.0, 5.1)
  assert found.limit == pytest.approx(5.1 + 6 * 1.4826 * 0.1)


def test_earlier_spikes_do_not_hide_later_ones():
  losses = make_losses(300)
  losses[150:300:4] += 20.0  # a fourth of all
  assert find(losses) == list(range(150, 300, 4))


def test_a_loss_that_stays_high_is_one_spike():
  losses = make_losses(400)
  losses[200:] += 3.0
  assert find(losses) == [200]


def test_the_first_losses_and_small_jumps_are_none():
  early = make_losses(100)
  early[49] += 50.0
  assert find(early) == []
  quiet = np.full(100, 5.0)
  quiet[80] = 5.2  # by 4 %
  assert find(quiet) == []
  quiet[90] = 5.3
  assert find(quiet) == [90]


def test_a_loss_near_0_has_no_spikes():
  # A batch with a wrong row, late in fine-tuning.
  losses = np.full(200, 0.009)
  losses[150] = 0.12
  assert find(losses) == []
  losses[160] = 0.5
  assert find(losses) == [160]
