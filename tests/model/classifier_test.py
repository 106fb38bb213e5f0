"""Tests of BERT with a classification head."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import classifier, heads
from tests import models

KERNEL = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
HEAD = classifier.Head(
  KERNEL, np.arange(3.0, dtype='f4'), ('a', 'b', 'c'), 7, ()
)
BATCH = {
  'input_ids': jnp.array([[2, 5, 6, 3, 7, 3, 0]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 1, 1, 0]]),
  'segment_ids': jnp.array([[0, 0, 0, 0, 1, 1, 0]]),
}


def compute(key=None, rate=0.5):
  """Returns logits [1, 3] of a model whose other dropout is off."""
  config = dataclasses.replace(
    models.CONFIG, dropout=0.0, attention_dropout=0.0
  )
  module = classifier.Classifier(config, 3, rate)
  params = HEAD.add_to(models.make_params())
  rngs = None if key is None else {'dropout': jax.random.key(key)}
  return jax.jit(module.apply, static_argnums=2)(
    {'params': params}, BATCH, key is None, rngs=rngs
  )


def test_logits_are_a_product_with_what_nsp_was_trained_on():
  module = heads.PretrainingModel(models.CONFIG)
  batch = BATCH | {'masked_lm_positions': jnp.array([[1]])}
  _, sown = jax.jit(module.apply, static_argnames='mutable')(
    {'params': models.make_params()}, batch, mutable='intermediates'
  )
  [pooled] = sown['intermediates']['pooled']
  expected = pooled @ KERNEL + jnp.arange(3.0)[None]
  np.testing.assert_allclose(compute(), expected, atol=1e-6)


def test_dropout_before_the_head_is_for_training_only():
  assert jnp.array_equal(compute(), compute())
  assert not jnp.allclose(compute(key=0), compute(key=1))
  np.testing.assert_allclose(compute(key=0, rate=0.0), compute(), atol=1e-6)
