"""Tests of the optimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config, errors, param_names
from bert_jax.trainer import optimizer
from tests import models

WARM, ZERO = {}, {'decay_from': 'zero'}
TWO = {'steps': (100, 50), 'warmups': (20, 10), 'learning_rates': (6e-3, 4e-3)}
# The second continues the decay of the first.
THREE = {'steps': (60, 40, 50), 'warmups': (20, 0, 10)}
THREE['learning_rates'] = (6e-3, 0, 4e-3)


@pytest.mark.parametrize(
  'phases, changes, rates',
  [
    ({}, WARM, {0: 0, 5_000: 5e-5, 10_000: 1e-4, 500_000: 5.0505e-5}),
    ({}, WARM, {999_999: 1e-4 / 990_000, 1_000_000: 0, 3_000_000: 0}),
    # Google's, which drops after the warm-up.
    ({}, ZERO, {9_999: 9.999e-5, 10_000: 9.9e-5, 500_000: 5e-5, 1_000_001: 0}),
    # Half of the warm-up; then 80 and 25 of 100 updates are left.
    (TWO, ZERO, {10: 3e-3, 20: 6e-3 * 0.8, 75: 6e-3 * 0.25, 100: 0}),
    (TWO, ZERO, {105: 2e-3, 110: 4e-3 * 0.8, 150: 0}),
    (THREE, WARM, {20: 6e-3, 60: 3e-3, 80: 1.5e-3, 100: 0, 110: 4e-3}),
  ],
)
def test_rates_rise_fall_and_end_at_exactly_zero(phases, changes, rates):
  c = config.pretraining('base')
  c.phases.update(phases)
  c.optimizer.update(changes)
  rate = optimizer.make_schedule(c.optimizer, c.phases)
  compiled = jax.jit(rate)  # a line alone would end at 5e-12
  for step, expected in rates.items():
    assert float(rate(step)) == pytest.approx(expected, rel=1e-3)
    assert expected or float(rate(step)) == float(compiled(step)) == 0


def test_wsd_holds_the_rate_of_each_phase_and_the_last_decays():
  c = config.pretraining('base')
  c.phases.update(THREE)
  c.optimizer.update(schedule='wsd', decay_steps=16)
  rate = optimizer.make_schedule(c.optimizer, c.phases)
  # The warm-ups end at 20 and 110; the last 16 of 150 updates fall by 1 - sqrt.
  expected = {10: 3e-3, 20: 6e-3, 99: 6e-3, 100: 0, 105: 2e-3, 110: 4e-3}
  expected |= {134: 4e-3, 138: 2e-3, 143: 1e-3, 150: 0}
  for step, value in expected.items():
    assert float(rate(step)) == pytest.approx(value, rel=1e-5), step


def test_decay_split_of_base():
  bert = config.model_config(config.pretraining('base'))
  shapes = models.shapes(bert, with_nsp=True)
  mask = param_names.flatten(optimizer.decay_mask(shapes))
  sizes = {n: x.size for n, x in param_names.flatten(shapes).items()}
  assert sum(sizes[n] for n in sizes if mask[n]) == 109_951_488
  assert sum(sizes[n] for n in sizes if not mask[n]) == 154_940


def test_first_update_by_hand():
  c = config.pretraining('base').optimizer
  with c.unlocked():
    c.epsilon, c.weight_decay, c.clip_norm = 1e-30, 0.5, 1.0
  tx = optimizer.make(c)
  params = {'kernel': jnp.array([2.0, -4.0]), 'bias': jnp.array([3.0])}
  grads = {'kernel': jnp.array([3.0, -4.0]), 'bias': jnp.array([1.0])}
  updates, _ = tx.update(grads, tx.init(params), params)
  # Adam's first direction is the gradient's sign; the kernel adds 0.5 of
  # itself, the bias does not.
  assert updates['kernel'].tolist() == pytest.approx([2, -3], rel=1e-5)
  assert updates['bias'].tolist() == pytest.approx([1], rel=1e-5)


def directions(gradient, **fields):
  """Returns the first two updates of a bias by the same gradient."""
  c = config.pretraining('base').optimizer
  c.update(fields)
  tx = optimizer.make(c)
  params = {'bias': jnp.zeros(1)}
  state, found = tx.init(params), []
  for _ in range(2):
    updates, state = tx.update({'bias': jnp.array([gradient])}, state, params)
    found.append(float(updates['bias'][0]))
  return found


def test_bias_correction_can_be_turned_off():
  assert directions(1.0) == pytest.approx([1, 1], rel=1e-4)
  # 0.1 / sqrt(0.001), then 0.19 / sqrt(0.001999).
  assert directions(1.0, bias_correction=False) == pytest.approx(
    [3.1622, 4.2495], rel=1e-4
  )


def test_epsilon_stands_beside_the_root():
  # g / (|g| + epsilon); under the root it would be 0.001.
  assert directions(1e-6, epsilon=1e-6)[0] == pytest.approx(1 / 2, rel=1e-4)
  assert directions(1e-6, epsilon=1e-8)[0] == pytest.approx(1 / 1.01, rel=1e-4)


def test_what_is_clipped_part_by_part_is_not_clipped_again():
  c = config.pretraining('base').optimizer
  assert optimizer.make_clip(c) is None
  # With so large an epsilon, Adam's first direction is the gradient over it.
  assert directions(3.0, epsilon=1e3)[0] == pytest.approx(1e-3, rel=0.01)
  c.clip_unit = 'micro_batch'
  clipped = optimizer.make_clip(c)({'kernel': jnp.array([3.0, -4.0])})
  assert clipped['kernel'].tolist() == pytest.approx([0.6, -0.8])
  assert directions(3.0, epsilon=1e3, clip_unit='micro_batch')[
    0
  ] == pytest.approx(3e-3, rel=0.01)


def small_params():
  return {
    'embeddings': {'word': {'embedding': jnp.ones(2)}},
    'encoder': {
      f'layer_{i}': {'mlp_in': {'kernel': jnp.ones(3)}} for i in range(3)
    },
    'pooler': {'kernel': jnp.ones(4)},
  }


def update_once(**changes):
  """Returns {name: update of the first value} for gradients of 1."""
  c = config.pretraining('base').optimizer
  c.update(clip_norm=1e9, weight_decay=1.0, **changes)
  params, tx = small_params(), optimizer.make(c)
  updates, _ = tx.update(
    jax.tree.map(jnp.ones_like, params), tx.init(params), params, finite=True
  )
  return {n: float(u[0]) for n, u in param_names.flatten(updates).items()}


def test_what_is_frozen_neither_moves_nor_decays():
  moved = pytest.approx(2, abs=1e-5)  # Adam's direction and the decay
  assert update_once(freeze='layer_1/|^pooler') == {
    'embeddings/word/embedding': moved,
    'encoder/layer_0/mlp_in/kernel': moved,
    'encoder/layer_1/mlp_in/kernel': 0.0,
    'encoder/layer_2/mlp_in/kernel': moved,
    'pooler/kernel': 0.0,
  }


def test_frozen_gradients_do_not_count_for_clipping():
  # The norm of all is 4; of the 4 that are trained it is 2.
  c = config.pretraining('base').optimizer
  c.update(clip_unit='micro_batch', freeze='^(embeddings|encoder)/')
  clipped = optimizer.make_clip(c)(small_params())
  assert clipped['pooler']['kernel'].tolist() == [0.5] * 4
  assert clipped['embeddings']['word']['embedding'].tolist() == [0, 0]


@pytest.mark.parametrize('freeze, found', [('layer_9', 'no'), ('/', 'every')])
def test_a_pattern_that_freezes_nothing_or_all_is_refused_at_once(
  freeze, found
):
  c = config.pretraining('base').optimizer
  c.freeze = freeze
  with pytest.raises(errors.UserError, match=f'is found in {found} name'):
    optimizer.make(c).init(small_params())


def by_lamb(params, grads, corrected):
  """Returns LAMB's first direction in NumPy, for {name: array}."""
  # Corrected for their start at 0, Adam's moments are the gradient's.
  first, second = (1, 1) if corrected else (0.1, 0.001)
  norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
  found = {}
  for name, weights in params.items():
    g = grads[name] * min(1, 1 / norm)
    direction = first * g / (np.sqrt(second) * np.abs(g) + 1e-6)
    if 'bias' not in name:
      direction = direction + 0.01 * weights
      parts = [np.s_[:, n] for n in range(3)] if 'qkv' in name else [np.s_[:]]
      for part in parts:
        own, new = (np.linalg.norm(x[part]) for x in (weights, direction))
        direction[part] *= own / new if own and new else 1
    found[name] = direction
  return found


# In float32, 1 - 0.999 has an error of 5e-5, which optax divides by.
@pytest.mark.parametrize('corrected, most', [(False, 1e-6), (True, 1e-4)])
def test_first_update_of_lamb_is_that_of_its_published_code(corrected, most):
  random = np.random.default_rng(0)
  shapes = {
    'encoder/layer_0/attention/qkv/kernel': (8, 3, 2, 4),
    'encoder/layer_0/attention/qkv/bias': (3, 2, 4),
    'encoder/layer_0/mlp_in/kernel': (8, 16),
    'mlm/bias': (5,),
    'new/kernel': (4, 4),  # weights of 0 keep their update
  }
  params, grads = (
    {name: random.normal(size=shape) for name, shape in shapes.items()}
    for _ in range(2)
  )
  params['new/kernel'] *= 0
  c = config.pretraining('base').optimizer
  c.algorithm, c.bias_correction = 'lamb', corrected
  tx = optimizer.make(c)
  expected, own = (
    by_lamb(params, grads, corrected),
    jax.tree.map(jnp.float32, params),
  )
  grads = jax.tree.map(jnp.float32, grads)
  found, _ = jax.jit(tx.update)(grads, tx.init(own), own)
  for name, x in expected.items():
    np.testing.assert_allclose(found[name], x, rtol=most, atol=1e-6)


_STABLE = {'algorithm': 'stable_adamw', 'clip_norm': 1e30, 'b2': 0.98}


def update_all(c, params, gradients, finite=True):
  """Returns the parameters after updates at a rate of 0.5, with the last state."""
  tx = optimizer.make(c)
  state = tx.init(params)

  @jax.jit
  def update(grads, state, params):
    updates, state = tx.update(grads, state, params, finite=finite)
    return jax.tree.map(lambda p, u: p - 0.5 * u, params, updates), state

  for grads in gradients:
    params, state = update(jax.tree.map(jnp.float32, grads), state, params)
  return params, state


def by_stable_adamw(weights, gradients, decay):
  """Returns an array after updates at a rate of 0.5, by algorithm 2, and RMS."""
  p, v, u, found = np.float64(weights), 0.0, 0.0, []
  for t, g in enumerate(np.float64(gradients), 1):
    b1, b2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (0.9, 0.98))
    v, u = b1 * v + (1 - b1) * g, b2 * u + (1 - b2) * g**2
    found.append(np.sqrt(np.mean(g**2 / np.maximum(u, 1e-12))))
    rate = 0.5 / max(1, found[-1])
    p = p - rate * decay * p - rate * v / (np.sqrt(u) + 1e-6)
  return p, found


def test_five_updates_of_stable_adamw_are_those_of_its_paper():
  random = np.random.default_rng(0)
  shapes = {'attention/qkv/kernel': (4, 3, 2, 2), 'mlm/bias': (6,)}
  params = {name: random.normal(size=x) for name, x in shapes.items()}
  scales = 1, 0.5, 20, 1e-7, 300  # the third and the last are limited
  gradients = [
    {name: scale * random.normal(size=x) for name, x in shapes.items()}
    for scale in scales
  ]
  c = config.pretraining('base').optimizer
  c.update(weight_decay=0.1, **_STABLE)
  own, _ = update_all(c, jax.tree.map(jnp.float32, params), gradients)
  for name, decay in (('attention/qkv/kernel', 0.1), ('mlm/bias', 0)):
    given = params[name], [x[name] for x in gradients], decay
    expected, found = by_stable_adamw(*given)
    assert [x > 1.01 for x in found] == [False, False, True, False, True]
    np.testing.assert_allclose(own[name], expected, rtol=1e-4, atol=1e-5)


def test_small_gradients_make_stable_adamw_the_same_as_adamw_bit_for_bit():
  random = np.random.default_rng(0)
  # From the second on they shrink, so no RMS is above 1.
  gradients = [{'kernel': 0.5**n * random.normal(size=9)} for n in range(5)]
  params, found = {'kernel': jnp.arange(9.0)}, []
  for algorithm in ('adamw', 'stable_adamw'):
    c = config.pretraining('base').optimizer
    c.update(_STABLE | {'algorithm': algorithm})
    found.append(update_all(c, params, gradients)[0]['kernel'].tolist())
  assert found[0] == found[1]


def test_stable_adamw_keeps_its_state_if_a_gradient_is_not_finite():
  c = config.pretraining('base').optimizer
  c.update(_STABLE)
  params = {'kernel': jnp.ones(3)}
  _, state = update_all(c, params, [{'kernel': np.full(3, np.nan)}], False)
  assert param_names.flatten(state)['1/mu/kernel'].tolist() == [0, 0, 0]
