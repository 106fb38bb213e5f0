"""Tests of a language model that classifies by its last token."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import gpt_classifier, heads
from bert_jax.ops import tied_decoder
from tests import models

CONFIG = dataclasses.replace(models.CONFIG, causal=True, dropout=0.0)
MODULE = gpt_classifier.GptClassifier(CONFIG, 3, 0.5)
BATCH = {
  'input_ids': jnp.array([[2, 5, 6, 3, 0], [2, 7, 5, 6, 3]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
  'segment_ids': jnp.zeros((2, 5), jnp.int32),
}


@functools.cache
def make_params():
  kernel = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
  head = {'kernel': kernel, 'bias': np.arange(3, dtype='f4')}
  return models.make_params(CONFIG, with_nsp=False) | {'classifier': head}


def run(batch, method=None):
  apply = functools.partial(MODULE.apply, method=method)
  return jax.jit(apply)({'params': make_params()}, batch)


def test_the_last_token_is_classified_without_a_pooler():
  logits = run(BATCH)
  padded = {name: jnp.pad(x, ((0, 0), (0, 2))) for name, x in BATCH.items()}
  np.testing.assert_allclose(run(padded), logits, atol=1e-5)
  for position in range(4):
    ids = BATCH['input_ids'].at[0, position].set(8)
    other = run(BATCH | {'input_ids': ids})
    assert jnp.abs(other - logits)[0].max() > 1e-4
    np.testing.assert_array_equal(other[1], logits[1])


def test_tokens_are_predicted_as_in_pretraining():
  logits, inputs = run(BATCH, 'with_tokens')
  np.testing.assert_allclose(logits, run(BATCH), atol=1e-6)
  x, table, bias, labels = inputs
  found = tied_decoder.compute_logits(x, table, bias, 11)
  positions = jnp.broadcast_to(jnp.arange(4), (2, 4))
  module = heads.PretrainingModel(CONFIG, with_nsp=False)
  params = {k: x for k, x in make_params().items() if k != 'classifier'}
  expected, _ = jax.jit(module.apply)(
    {'params': params}, BATCH | {'masked_lm_positions': positions}
  )
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_array_equal(labels, table[BATCH['input_ids'][:, 1:]])
