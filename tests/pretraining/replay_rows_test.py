"""Rows by themselves add up to what training computes from all of them."""

import functools
import types

import jax
import numpy as np
import pytest

from bert_jax.parallel import device_mesh
from bert_jax.pretraining import replay_rows
from bert_jax.train import gradient, task
from bert_jax.train.step import jit_rates, run_key, train_step
from tests import training

STEP = 5


def make_config(parts, **changes):
  return training.small_config(
    model__dropout=0.3,
    model__attention_dropout=0.3,
    phases__accumulate=(parts,),
    **changes,
  )


def train(c, batch):
  """Returns the metrics of an update on two devices."""
  mesh = device_mesh.make_mesh(devices=jax.devices()[:2])
  how = gradient.make_update(
    c, training.make_objective(c), task.list_phases(c)[0], mesh
  )
  state = training.make_state()
  state = state.replace(opt_state=how.tx.init(state.params))
  rates = jit_rates(c, mesh)(0)
  step = jax.jit(functools.partial(train_step, rates=rates, update=how))
  return jax.device_get(step(state, batch, run_key(c))[1])


def measure(c, batch, done=lambda n: None):
  replay = types.SimpleNamespace(
    config=c,
    objective=training.make_objective(c),
    phase=task.list_phases(c)[0],
    params=training.make_state().params,
    batch=batch,
    number=STEP + 1,
  )
  return replay_rows.measure(replay, done)


@pytest.mark.slow
@pytest.mark.parametrize(
  'parts, unit', [(1, 'batch'), (2, 'batch'), (2, 'micro_batch')]
)
def test_rows_add_up_to_the_update_of_training(parts, unit):
  c = make_config(parts, optimizer__clip_unit=unit)
  batch, counted = training.make_batch(3), []
  metrics, found = train(c, batch), measure(c, batch, counted.append)
  assert counted == [1] * training.ROWS
  for name, (total, count) in metrics['sums'].items():
    assert found.sums[name].sum() == pytest.approx(total, rel=1e-5)
    assert found.counts[name].sum() == count
  loss = sum(
    x / n for x, n in map(metrics['sums'].get, ('mlm_loss', 'nsp_loss'))
  )
  assert found.losses.sum() == pytest.approx(loss, rel=1e-5)
  if unit == 'batch':  # else it is that of clipped gradients
    assert found.grad_norm == pytest.approx(metrics['grad_norm'], rel=1e-4)
  assert len({*found.grad_norms.tolist()}) == training.ROWS


def test_only_the_row_that_is_not_finite_is_named():
  batch = training.make_batch(3)
  batch['masked_lm_weights'][6, 0] = np.nan
  c = make_config(1)
  found = measure(c, batch)
  assert np.flatnonzero(~np.isfinite(found.sums['mlm_loss'])).tolist() == [6]


def test_dropout_is_left_out_if_it_depends_on_the_devices():
  c = make_config(1)
  c.rng = 'rbg'
  plain = training.small_config()
  plain.rng = 'rbg'
  batch = training.make_batch(3)
  assert replay_rows.find_key(c, task.list_phases(c)[0], STEP, 0) is None
  np.testing.assert_allclose(
    measure(c, batch).losses, measure(plain, batch).losses, rtol=1e-6
  )
