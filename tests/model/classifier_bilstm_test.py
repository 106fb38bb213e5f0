"""Tests of the bidirectional LSTM."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import classifier

MASK = jnp.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@functools.cache
def make_params():
  init = jax.jit(classifier.BiLstm(3).init)
  return init(jax.random.key(1), make_input(), MASK)


def make_input():
  return jax.random.normal(jax.random.key(0), (2, 5, 4))


_APPLY = jax.jit(classifier.BiLstm(3).apply)


def compute(x, mask=MASK):
  return _APPLY(make_params(), x, mask)


def step(params, state, x):
  """Computes an LSTM's (cell state, output) after a token."""

  def gate(name):
    i, h = params[f'i{name}'], params[f'h{name}']
    return x @ i['kernel'] + state[1] @ h['kernel'] + h['bias']

  i, f, o = (jax.nn.sigmoid(gate(name)) for name in 'ifo')
  cell = f * state[0] + i * jnp.tanh(gate('g'))
  return cell, o * jnp.tanh(cell)


@jax.jit
def read(params, x):
  """Returns the outputs [S, 3] of an LSTM for x [S, D]."""
  state, outputs = (jnp.zeros(3), jnp.zeros(3)), []
  for row in x:
    state = step(params, state, row)
    outputs.append(state[1])
  return jnp.stack(outputs)


def test_outputs_are_those_of_lstms_that_read_from_both_ends():
  params, x = make_params()['params'], make_input()[0, :3]
  for i in range(2):
    back = read(params[f'backward_{i}'], x[::-1])[::-1]
    x = jnp.concatenate([read(params[f'forward_{i}'], x), back], -1)
  np.testing.assert_allclose(compute(make_input())[0, :3], x, atol=1e-6)
  summary = classifier.summarise_lstm(compute(make_input()), MASK)
  expected = jnp.concatenate([x[2, :3], x[0, 3:]])
  np.testing.assert_allclose(summary[0], expected, atol=1e-6)


def test_padding_is_ignored():
  x, found = make_input(), compute(make_input())
  other = compute(x.at[0, 3:].set(9.0))
  np.testing.assert_array_equal(found[0, :3], other[0, :3])
  alone = compute(x[:1, :3], MASK[:1, :3])
  np.testing.assert_allclose(found[:1, :3], alone, atol=1e-6)
  summaries = (classifier.summarise_lstm(y, MASK) for y in (found, other))
  np.testing.assert_array_equal(*summaries)


def test_flops_are_six_per_weight_and_token():
  leaves = jax.tree_util.tree_leaves_with_path(make_params()['params'])
  weights = sum(x.size for path, x in leaves if path[-1].key == 'kernel')
  # 2 directions, 4 gates: 3 x (4 + 3), then 3 x (6 + 3).
  assert weights == 2 * 4 * 3 * (7 + 9)
  assert classifier.count_lstm_flops(5, 4, 3) == 6 * 5 * weights
