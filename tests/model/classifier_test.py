"""Tests of BERT with a classification head."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import classifier, heads, parameters
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


LONG = {
  'input_ids': jnp.array([[2, 5, 6, 3, 7, 3, 0]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 1, 1, 0]]),
  'segment_ids': jnp.zeros((1, 7), jnp.int32),
}


def compute_of(batch, params=None, units=0, **changes):
  """Returns logits of a model whose config differs."""
  config = dataclasses.replace(models.CONFIG, **changes)
  module = classifier.Classifier(config, 3, 0.0, units)
  params = params or HEAD.add_to(models.make_params())
  return jax.jit(module.apply)({'params': params}, batch)


def list_seen(**changes):
  """Returns which tokens of `LONG` change the logits."""
  seen = []
  for i in range(7):
    ids = LONG['input_ids'].at[0, i].set(8)
    other = compute_of(LONG | {'input_ids': ids}, **changes)
    seen.append(int(jnp.abs(other - compute_of(LONG, **changes)).max() > 1e-6))
  return seen


@pytest.mark.slow
def test_models_that_read_one_way_are_read_where_they_have_seen_everything():
  everything = [1, 1, 1, 1, 1, 1, 0]  # but padding
  assert list_seen() == everything
  assert list_seen(causal=True) == everything
  assert list_seen(causal=True, reverse=True) == everything


def test_a_left_to_right_model_is_read_at_the_last_token():
  """What follows that token changes nothing but its place."""
  short = {name: x[:, :4] for name, x in LONG.items()}
  cut = LONG | {'input_mask': jnp.array([[1, 1, 1, 1, 0, 0, 0]])}
  np.testing.assert_allclose(
    compute_of(cut, causal=True), compute_of(short, causal=True), atol=1e-6
  )
  moved = compute_of(LONG, causal=True)
  assert jnp.abs(moved - compute_of(cut, causal=True)).max() > 1e-4


@pytest.mark.slow
def test_a_bilstm_takes_the_place_of_the_pooler():
  module = classifier.Classifier(models.CONFIG, 3, 0.0, 6)
  params = parameters.init(module, jax.random.key(0))
  assert set(params) == {'embeddings', 'encoder', 'bilstm', 'classifier'}
  assert params['classifier']['kernel'].shape == (12, 3)
  head = HEAD._replace(
    kernel=params['classifier']['kernel'], bilstm=params['bilstm']
  )
  whole = head.add_to(models.make_params())
  assert set(whole) == set(params)
  found = compute_of(LONG, whole, units=6)
  longer = {
    name: jnp.pad(x[:, :6], ((0, 0), (0, 1))) for name, x in LONG.items()
  }
  longer['input_ids'] = longer['input_ids'].at[0, 6].set(9)
  np.testing.assert_array_equal(compute_of(longer, whole, units=6), found)
