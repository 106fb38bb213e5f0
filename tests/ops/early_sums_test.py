"""Tests of sums of gradients beside the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.ops import early_sums


def differentiate(add_up):
  """Returns the gradients of (3 x a) b: (of x, of the parameters)."""
  params = {
    'encoder': {
      f'layer_{i}': {'kernel': jnp.full((4,), 2.0 + i)} for i in (0, 1)
    }
  }

  def loss(x, params):
    turn = jnp.zeros(())
    for name in ('layer_0', 'layer_1'):
      x, turn, own = early_sums.enter(x, turn, params['encoder'], name)
      x = x * own['kernel']
    return x.sum()

  names = [f'encoder/layer_{i}/kernel' for i in (0, 1)]
  params = early_sums.insert(params, add_up, names)
  x, found = jax.jit(jax.grad(loss, (0, 1)))(jnp.full((4,), 3.0), params)
  return np.array(x), jax.tree.map(np.array, early_sums.extract(found))


def test_gradients_are_those_of_the_shards():
  # A device that keeps the first half of a sum over two equal devices.
  x, found = differentiate(lambda name, grad: 2 * grad[:2])
  assert x.tolist() == [6.0] * 4
  assert jax.tree.map(np.ndarray.tolist, found) == {
    'encoder': {
      'layer_0': {'kernel': [18.0, 18.0]},
      'layer_1': {'kernel': [12.0, 12.0]},
    }
  }


def test_a_layer_waits_for_both_ends_of_the_sums_above():
  for place in (0, -1):

    def add_up(name, grad, place=place):
      return grad.at[place].set(jnp.nan) if 'layer_1' in name else grad

    # What is not a number shows that it was waited for.
    assert np.isnan(differentiate(add_up)[0]).all()
  # The lowest layer's own sums are not waited for.
  x, _ = differentiate(
    lambda name, grad: grad * (jnp.nan if 'layer_0' in name else 1)
  )
  assert x.tolist() == [6.0] * 4
