"""Tests of the heads on packed rows; those on plain rows are in model_test."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import bert_config, heads
from tests import models

# B=2 S=5 P=3 N=2 V=11 D=8: pairs of 3 and 2 tokens, then one of 4.
SMALL = bert_config.BertConfig(11, 8, 1, 2, 12, max_positions=7)
BATCH = {
  'input_ids': jnp.array([[2, 5, 3, 2, 6], [2, 7, 8, 3, 0]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
  'segment_ids': jnp.array([[0, 0, 1, 0, 1], [0, 0, 1, 1, 0]]),
  'sequence_ids': jnp.array([[1, 1, 1, 2, 2], [1, 1, 1, 1, 0]]),
  'position_ids': jnp.array([[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]),
  'cls_positions': jnp.array([[0, 3], [0, 0]]),
  'masked_lm_positions': jnp.array([[1, 4, 0], [1, 2, 0]]),
}


@functools.cache
def build(c=SMALL, with_nsp=True):
  module = heads.PretrainingModel(c, with_nsp)
  return jax.jit(module.apply), {'params': models.make_params(c, with_nsp)}


def test_packed_rows_have_next_sentence_logits_for_each_pair():
  apply, params = build()
  mlm, nsp = apply(params, BATCH)
  assert (mlm.shape, nsp.shape) == ((2, 3, 11), (2, 2, 2))
  # A pair that is absent repeats position 0; its weight is 0.
  np.testing.assert_array_equal(nsp[1, 0], nsp[1, 1])
  assert float(jnp.abs(nsp[0, 0] - nsp[0, 1]).max()) > 1e-3


def test_each_pair_is_read_from_its_own_cls():
  apply, params = build()
  _, nsp = apply(params, BATCH)
  swapped = {**BATCH, 'cls_positions': jnp.array([[3, 0], [0, 0]])}
  _, other = apply(params, swapped)
  np.testing.assert_allclose(nsp[0], other[0, ::-1], atol=1e-6)


def test_packed_rows_need_no_other_parameters():
  plain = {
    name: BATCH[name]
    for name in (
      'input_ids',
      'input_mask',
      'segment_ids',
      'masked_lm_positions',
    )
  }
  module = heads.PretrainingModel(SMALL)
  shapes = [
    jax.eval_shape(module.init, jax.random.key(0), batch)
    for batch in (plain, BATCH)
  ]
  assert shapes[0] == shapes[1]


def test_without_next_sentence_prediction_there_are_no_logits_for_it():
  apply, params = build(dataclasses.replace(SMALL, causal=True), False)
  mlm, nsp = apply(params, BATCH)
  assert mlm.shape == (2, 3, 11) and nsp is None
