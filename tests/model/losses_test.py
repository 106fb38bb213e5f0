"""Tests of losses."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import losses

LOGITS = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))


def test_loss_is_the_sum_of_minus_log_p_and_hits_are_counted():
  loss, hits = losses.sum_tokens(
    LOGITS, jnp.array([0, 2]), jnp.array([1.0, 1.0])
  )
  np.testing.assert_allclose(loss, np.log(2) + np.log(10), rtol=1e-6)
  assert hits == 1


def test_weight_zero_moves_nothing():
  def loss(logits):
    return losses.sum_tokens(logits, jnp.array([0, 2]), jnp.array([1.0, 0]))[0]

  grads = jax.grad(loss)(LOGITS)
  assert bool(jnp.all(grads[1] == 0))
  np.testing.assert_allclose(grads[0], [-0.5, 0.25, 0.25], atol=1e-6)
