"""Tests of what sees what, and of the implementations of attention."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

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
