"""Tests of what sees what, and of the implementations of attention."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import attention, bert_config

# B=3 S=8 H=2 K=4; rows of 8, 5 and no tokens.
CONFIG = bert_config.BertConfig(11, 8, 1, 2, 12, attention_dropout=0.0)
TOKENS = attention.Tokens(jnp.arange(8)[None] < jnp.array([[8], [5], [0]]))
QKV = jax.random.normal(jax.random.key(0), (3, 8, 3, 2, 4))
BIAS = jax.random.normal(jax.random.key(1), (3, 2, 4))


def test_probabilities_are_shown_before_dropout():
  shown = []
  config = dataclasses.replace(CONFIG, attention_dropout=0.5)
  key = jax.random.key(2)
  attention.attend(QKV, BIAS, TOKENS, key, config, shown.append)
  np.testing.assert_allclose(shown[0].sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize('name', ['xla', 'recompute'])
@pytest.mark.parametrize('window', [None, 64])
def test_documents_of_a_row_do_not_see_each_other(name, window):
  """Their gradients with respect to each other are 0 to the last bit."""
  length, first = 256, 100
  config = dataclasses.replace(CONFIG, attention=name)
  ids = 1 + (jnp.arange(length)[None] >= first)
  tokens = attention.Tokens(jnp.ones_like(ids), ids)
  qkv = 5 * jax.random.normal(jax.random.key(3), (1, length, 3, 2, 4))

  def loss(qkv):
    mixed = attention.attend(qkv, None, tokens, None, config, window=window)
    return jnp.sum(jnp.sin(mixed[:, :first]))

  slope = jnp.abs(jax.jit(jax.grad(loss))(qkv)).max((0, 2, 3, 4))
  assert not slope[first:].any()
  assert slope[first - 60 : first].all()
