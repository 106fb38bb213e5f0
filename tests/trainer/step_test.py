"""Tests of one update."""

import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import config
from bert_jax.parallel import device_mesh, partition
from bert_jax.pretraining import pretrain
from bert_jax.trainer import gradient, optimizer
from bert_jax.trainer.step import (
  BLOCK,
  TrainState,
  jit_eval,
  jit_rates,
  train_step,
)
from tests import training


def updates(devices, model, parts=1, steps=1, dropout=0.1, **kwargs):
  """Returns (state, metrics of each update) of training on a mesh."""
  mesh = device_mesh.make_mesh(model, jax.devices()[:devices])
  state, step = training.make_step(dropout, parts, mesh, **kwargs)
  state = jax.device_put(state, partition.state_shardings(mesh, state))
  key = jax.device_put(jax.random.key(1), device_mesh.replicate(mesh))
  found = []
  for i in range(steps):
    rows = device_mesh.put_batch(mesh, training.make_batch(i))
    state, metrics = step(state, rows, key)
    found.append(jax.device_get(metrics))
  return state, found


def mlm_loss(metrics):
  total, count = metrics['sums']['mlm_loss']
  return float(total) / float(count)


@pytest.mark.parametrize(
  'fields',
  [
    {},
    pytest.param({'algorithm': 'lamb'}, marks=pytest.mark.slow),
    pytest.param({'algorithm': 'stable_adamw'}, marks=pytest.mark.slow),
  ],
)
def test_shares_of_the_state_train_as_the_whole(fields):
  # Dropout is on: its bits must not depend on the layout either.
  whole, a = updates(1, 1, steps=3, **fields)
  shares, b = updates(4, 2, steps=3, **fields)
  assert mlm_loss(a[0]) == pytest.approx(mlm_loss(b[0]), abs=1e-6)
  assert abs(mlm_loss(a[0]) - math.log(training.VOCAB)) < 0.2
  # One this long is clipped, by the norm of all shares.
  assert max(x['grad_norm'] for x in a) > 1
  for x, y in zip(a, b, strict=True):
    assert mlm_loss(x) == pytest.approx(mlm_loss(y), rel=1e-5)
    np.testing.assert_allclose(x['grad_norm'], y['grad_norm'], rtol=1e-5)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    jax.device_get(whole.params),
    jax.device_get(shares.params),
  )


def test_evaluation_sums_the_losses_of_all_devices():
  c, mesh = training.small_config(), device_mesh.make_mesh(2)
  made, batch = training.make_objective(c), training.make_batch(3)
  state, _ = training.make_step()
  whole, _ = jax.jit(lambda p, x: made.compute(p, x, None))(state.params, batch)
  kept = jax.device_put(
    state.params, partition.state_shardings(mesh, state).params
  )
  found, predictions = jit_eval(made, mesh)(
    kept, device_mesh.put_batch(mesh, batch)
  )
  assert predictions == {} and whole.keys() == found.keys()
  for name, total in whole.items():
    count = made.counts(batch)[name]
    np.testing.assert_allclose(found[name], (total, count), rtol=1e-6)


def test_the_layout_of_the_state_lasts():
  state, _ = updates(4, 2, steps=2)
  mesh = device_mesh.make_mesh(2)
  jax.tree.map(
    lambda x, s: x.sharding.is_equivalent_to(s, x.ndim) or pytest.fail(str(s)),
    state,
    partition.state_shardings(mesh, state),
  )
  # Of the query, key and value [8, 3, 2, 4]: half of the heads, half of the
  # input.
  name = ('encoder', 'layer_0', 'attention', 'qkv', 'kernel')
  kernel, moment = state.params, state.opt_state[1].mu
  for part in name:
    kernel, moment = kernel[part], moment[part]
  assert kernel.addressable_shards[0].data.shape == (4, 3, 1, 4)
  assert moment.addressable_shards[0].data.shape == (4, 3, 1, 4)


def test_a_non_finite_gradient_changes_nothing_but_the_step():
  state, step = training.make_step()
  bad = training.make_batch(0)
  bad['masked_lm_weights'][:] = np.inf
  new, metrics = step(state, bad, jax.random.key(1))
  assert not metrics['finite']
  assert int(new.step) == int(state.step) + 1
  jax.tree.map(
    np.testing.assert_array_equal,
    (new.params, new.opt_state),
    (state.params, state.opt_state),
  )


def test_gradient_is_that_of_the_averaged_losses():
  state, step = training.make_step()
  batch = training.make_batch(0)
  module = pretrain.make_module(training.small_config())

  def loss(params):
    mlm, nsp = module.apply({'params': params}, batch)
    mlm_nll = -jnp.take_along_axis(
      jax.nn.log_softmax(mlm), batch['masked_lm_ids'][..., None], -1
    )[..., 0]
    w = batch['masked_lm_weights']
    nsp_nll = -jnp.take_along_axis(
      jax.nn.log_softmax(nsp), batch['next_sentence_labels'][:, None], -1
    )
    return jnp.sum(mlm_nll * w) / w.sum() + jnp.mean(nsp_nll)

  grads = jax.jit(jax.grad(loss))(state.params)
  norm = math.sqrt(sum(float(jnp.sum(g * g)) for g in jax.tree.leaves(grads)))
  metrics = step(state, batch, jax.random.key(1))[1]
  assert float(metrics['grad_norm']) == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(
  'unit, expected',
  [
    # (6, 0), (0, 8) and (0.5, 0) have the mean (2.17, 2.67).
    ('batch', [6.5 / 3, 8 / 3]),
    # (6, 0) and (0, 8) have the mean (3, 4), clipped to (0.6, 0.8); (0.5, 0)
    # alone is short enough.
    ('micro_batch', [1.1, 0.8]),
  ],
)
def test_what_is_averaged_and_clipped_as_one(unit, expected):
  c = config.pretraining('base').optimizer
  c.clip_unit = unit

  def compute(params, batch, key):
    loss = jnp.sum(batch['weight'] * (batch['x'] @ params['nsp']['bias']))
    return {'loss': loss}, {}

  linear = types.SimpleNamespace(
    bert=types.SimpleNamespace(dtype='float32'),
    losses=('loss',),
    counts=lambda batch: {'loss': jnp.sum(batch['weight'])},
    compute=compute,
  )
  batch = {  # rows 0 and 2 are one micro-batch, 1 and 3 the other
    'x': jnp.array([[6.0, 0], [0.5, 0], [0, 8], [7, 7]]),
    'weight': jnp.array([1.0, 1, 1, 0]),
  }
  state = TrainState(jnp.int32(0), {'nsp': {'bias': jnp.zeros(2)}}, ())
  how = gradient.Update(
    objective=linear,
    mesh=device_mesh.make_mesh(devices=jax.devices()[:1]),
    tx=optax.identity(),
    parts=2,
    clip=optimizer.make_clip(c),
  )
  step = functools.partial(train_step, rates=jnp.ones(BLOCK), update=how)
  new, metrics = jax.jit(step)(state, batch, jax.random.key(0))
  assert new.params['nsp']['bias'].tolist() == pytest.approx(
    [-x for x in expected]
  )
  assert float(metrics['grad_norm']) == pytest.approx(math.hypot(*expected))


def test_rates_come_by_blocks_of_updates():
  c = config.pretraining('base')
  mesh = device_mesh.make_mesh(devices=jax.devices()[:2])
  rate = optimizer.make_schedule(c.optimizer, c.phases)
  rates = jit_rates(rate, mesh)
  for step in (0, 1, 10_000, 10_240, 999_999, 1_000_000):
    found = rates(step // BLOCK)[step % BLOCK]
    assert float(found) == pytest.approx(float(rate(step)), abs=1e-10)
  # The update takes its own.
  state, update = training.make_step()
  _, metrics = update(state, training.make_batch(0), jax.random.key(1))
  c = training.small_config((100,))
  wanted = optimizer.make_schedule(c.optimizer, c.phases)(state.step)
  assert float(metrics['learning_rate']) == pytest.approx(
    float(wanted), rel=1e-6
  )


def test_one_golden_step():
  state, step = training.make_step()
  new, metrics = step(state, training.make_batch(0), jax.random.key(1))
  total, count = metrics['sums']['mlm_loss']
  found = {
    'loss': round(float(total) / float(count), 4),
    'grad_norm': round(float(metrics['grad_norm']), 4),
    'learning_rate': round(float(metrics['learning_rate']), 6),
    'weights': round(
      float(sum(jnp.abs(x).sum() for x in jax.tree.leaves(new.params))), 2
    ),
  }
  assert found == GOLDEN, (
    'The update changed. If that is intended, put these numbers into GOLDEN '
    'and say so in CHANGELOG.md: runs cannot be resumed bit for bit.'
  )


GOLDEN = {
  'loss': 2.3928,
  'grad_norm': 1.4225,
  'learning_rate': 0.009694,
  'weights': 125.85,
}
