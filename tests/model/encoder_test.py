"""Tests of the encoder and the pre-training heads."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config, param_names
from bert_jax.model import bert_config, heads
from tests import models

# B=2 S=5 P=3 V=11 D=8 H=2 F=12 L=2.
SMALL = bert_config.BertConfig(11, 8, 2, 2, 12, max_positions=7)


def example(rows=2, length=5):
  ids = (np.arange(rows * length).reshape(rows, length) * 7 + 5) % 11
  return {
    'input_ids': jnp.array(ids, jnp.int32),
    'input_mask': jnp.ones((rows, length), jnp.int32),
    'segment_ids': jnp.array([[0, 0, 0, 1, 1]] * rows, jnp.int32)[:, :length],
    'masked_lm_positions': jnp.array([[1, 2, 4]] * rows, jnp.int32),
  }


@functools.cache
def build(c, with_nsp=True):
  """Returns (jitted apply, parameters)."""
  module = heads.PretrainingModel(c, with_nsp)
  return jax.jit(module.apply), models.make_params(c, with_nsp)


def count_parameters(c, with_nsp=True):
  return sum(x.size for x in jax.tree.leaves(models.shapes(c, with_nsp)))


@pytest.mark.parametrize(
  'size, vocab_size, both_heads, mlm_only',
  [
    ('base', 30522, 110_106_428, 109_514_298),
    ('large', 28996, 334_661_958, 333_610_308),
    ('3x768x12', 30522, 46_315_580, 45_723_450),
  ],
)
def test_parameter_counts(size, vocab_size, both_heads, mlm_only):
  layers, hidden, attention_heads = config.read_size(size)
  c = bert_config.BertConfig(
    vocab_size, hidden, layers, attention_heads, 4 * hidden
  )
  assert count_parameters(c) == both_heads
  assert count_parameters(c, with_nsp=False) == mlm_only


@pytest.mark.parametrize('norm', bert_config.NORMS)
def test_padding_does_not_change_logits(norm):
  apply, params = build(dataclasses.replace(SMALL, norm=norm))
  batch = example()
  longer = {
    name: x if 'positions' in name else jnp.pad(x, ((0, 0), (0, 2)))
    for name, x in batch.items()
  }
  for short, long in zip(
    apply({'params': params}, batch),
    apply({'params': params}, longer),
    strict=True,
  ):
    np.testing.assert_allclose(short, long, atol=1e-5)


def _influence(c):
  """Returns [P, S]: does the word at S change the logits at P?"""
  apply, params = build(c, with_nsp=False)
  batch = example(rows=1)
  positions = batch['masked_lm_positions']
  found = np.zeros((positions.shape[1], 5), bool)
  base = apply({'params': params}, batch)[0]
  for s in range(5):
    ids = batch['input_ids'].at[0, s].add(1) % 11
    other = apply({'params': params}, {**batch, 'input_ids': ids})[0]
    found[:, s] = np.abs(base - other)[0].max(-1) > 1e-6
  return found.astype(int).tolist()


@pytest.mark.parametrize(
  'changes, seen',
  [
    ({}, [[1, 1, 1, 1, 1]] * 3),
    (
      {'causal': True},
      [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
    ),
    (
      {'causal': True, 'reverse': True},
      [[0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]],
    ),
  ],
)
def test_a_model_sees_both_sides_or_one(changes, seen):
  assert _influence(dataclasses.replace(SMALL, **changes)) == seen


def test_initial_weights_are_cut_at_two_deviations():
  module = heads.PretrainingModel(dataclasses.replace(SMALL, vocab_size=4000))
  params = jax.jit(module.init)(jax.random.key(0), example())['params']
  for name, x in param_names.flatten(params).items():
    if name.endswith(('kernel', 'embedding')):
      assert float(jnp.abs(x).max()) <= 0.04
    else:
      assert float(jnp.ptp(x)) == 0
  word = params['embeddings']['word']['embedding']
  assert abs(float(word.std()) - 0.0176) < 0.0003


def test_flops_of_the_papers_models():
  base = bert_config.BertConfig(30522, 768, 12, 12, 3072)
  large = bert_config.BertConfig(30522, 1024, 24, 16, 4096)
  assert round(base.flops_per_sequence(128, 20) / 1e9, 1) == 69.9
  assert round(base.flops_per_sequence(512, 76) / 1e9, 1) == 300.9
  assert round(large.flops_per_sequence(128, 20) / 1e9, 1) == 240.6
  assert round(large.flops_per_sequence(512, 76) / 1e9, 1) == 1019.8
