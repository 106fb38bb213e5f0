"""Tests of BERT with a tag for each token."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import encoder, parameters, tagger
from tests import models

KERNEL = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
BATCH = {
  'input_ids': jnp.array([[2, 5, 6, 3, 0], [2, 7, 3, 0, 0]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]),
  'segment_ids': jnp.zeros((2, 5), jnp.int32),
}


def compute(batch, key=None):
  """Returns logits [2, S, 3] of a model that drops out before its head only."""
  config = dataclasses.replace(
    models.CONFIG, dropout=0.0, attention_dropout=0.0
  )
  params = models.make_params()
  params = {name: params[name] for name in ('embeddings', 'encoder')}
  params['classifier'] = {'kernel': KERNEL, 'bias': np.arange(3, dtype='f4')}
  rngs = None if key is None else {'dropout': jax.random.key(key)}
  return jax.jit(tagger.Tagger(config, 3, 0.5).apply, static_argnums=2)(
    {'params': params}, batch, key is None, rngs=rngs
  )


def test_logits_are_a_product_with_the_hidden_states():
  params = models.make_params()
  embeddings, layers = (
    part(models.CONFIG) for part in (encoder.Embeddings, encoder.Encoder)
  )
  x = embeddings.apply(
    {'params': params['embeddings']},
    *(BATCH['input_ids'], BATCH['segment_ids'], jnp.arange(5)[None], True),
  )
  tokens = encoder.attention.get_tokens(BATCH)
  hidden = layers.apply({'params': params['encoder']}, x, tokens, True)
  expected = hidden @ KERNEL + jnp.arange(3.0)[None, None]
  np.testing.assert_allclose(compute(BATCH), expected, atol=1e-5)


def test_padding_does_not_change_logits_and_dropout_is_for_training_only():
  longer = {name: jnp.pad(x, ((0, 0), (0, 2))) for name, x in BATCH.items()}
  found = compute(BATCH)
  np.testing.assert_allclose(compute(longer)[:, :5], found, atol=1e-5)
  assert not jnp.allclose(compute(BATCH, key=0), found)


def test_tags_of_a_left_to_right_model_do_not_depend_on_later_tokens():
  config = dataclasses.replace(models.CONFIG, causal=True)
  params = models.make_params()
  params = {name: params[name] for name in ('embeddings', 'encoder')}
  params['classifier'] = {'kernel': KERNEL, 'bias': np.arange(3, dtype='f4')}
  apply = jax.jit(tagger.Tagger(config, 3, 0.0).apply)
  found = apply({'params': params}, BATCH)[0]
  ids = BATCH['input_ids'].at[0, 2].set(8)
  other = apply({'params': params}, BATCH | {'input_ids': ids})[0]
  np.testing.assert_array_equal(found[:2], other[:2])
  assert (jnp.abs(found - other)[2:4].max(-1) > 1e-4).all()


@pytest.mark.slow
def test_a_bilstm_lets_tags_of_such_a_model_depend_on_later_tokens():
  config = dataclasses.replace(models.CONFIG, causal=True)
  module = tagger.Tagger(config, 3, 0.0, 6)
  params = parameters.init(module, jax.random.key(0))
  apply = jax.jit(module.apply)
  found = apply({'params': params}, BATCH)[0]
  ids = BATCH['input_ids'].at[0, 2].set(8)
  other = apply({'params': params}, BATCH | {'input_ids': ids})[0]
  assert (jnp.abs(found - other)[:4].max(-1) > 1e-7).all()
  # Padding still changes nothing.
  ids = BATCH['input_ids'].at[0, 4].set(8)
  other = apply({'params': params}, BATCH | {'input_ids': ids})[0]
  np.testing.assert_array_equal(found[:4], other[:4])
