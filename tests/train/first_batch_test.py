"""Tests of the look at the loss before any update."""

import jax.numpy as jnp
import pytest

from bert_jax import errors
from bert_jax.train import first_batch, task
from tests import training


class Bar:
  def __init__(self):
    self.lines = []

  def write(self, line):
    self.lines.append(line)


def check(loss, trained=False, hidden_size=8):
  """Checks a loss where guessing costs ln 11 + ln 2 = 3.091."""
  c, bar = training.small_config(), Bar()
  sums = {
    'mlm_loss': (jnp.float32(loss * 4), jnp.float32(4)),
    'nsp_loss': (jnp.float32(0), jnp.float32(4)),
  }
  (phase,) = task.list_phases(c)
  made = training.make_task(c)
  first_batch.check(
    made, made.objective(c), phase, sums, trained, hidden_size, bar
  )
  return bar.lines


def test_a_loss_near_that_of_guessing_passes_and_the_batch_is_shown():
  assert check(3.5) == ['8 rows', 'initial loss 3.500, expected 3.091']


def test_a_wide_model_may_be_further_from_guessing():
  # Logits of variance 4,096 x 0.02 x 0.02, of which the loss has half.
  assert check(3.091 + 0.8, hidden_size=4096)
  with pytest.raises(errors.UserError, match=r'\(\+-1.32\)'):
    check(3.091 + 1.4, hidden_size=4096)


@pytest.mark.parametrize('loss', [2.5, 3.7, float('nan')])
def test_a_loss_far_from_that_of_guessing_is_an_error(loss):
  with pytest.raises(errors.UserError, match='guessing costs 3.091'):
    check(loss)


def test_a_model_that_is_trained_already_may_have_any_loss():
  assert check(0.25, trained=True)[1] == (
    'initial loss 0.250; guessing costs 3.091'
  )


@pytest.mark.slow
def test_a_wrong_initial_loss_stops_the_run(tmp_path):
  c = training.small_config(model__initializer_std=5.0)
  with pytest.raises(errors.UserError, match='the initial loss is'):
    training.fit(c, tmp_path)
