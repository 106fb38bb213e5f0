"""Tests of initial weights with which attention adds from the start."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import param_names
from bert_jax.model import bert_config, heads, parameters
from tests.model import modern_test

# Random tokens in rows of 64, as long as those of the smallest models.
LENGTH = 64
TINY = bert_config.BertConfig(
  1000, 128, 1, 2, 512, max_positions=LENGTH, attention_init='neighbours'
)


def init(c, with_nsp=True):
  model = heads.PretrainingModel(c, with_nsp)
  made = functools.partial(parameters.init, model)
  return jax.jit(made)(jax.random.key(0))


def measure(c, offsets, **more):
  """Returns {offset: attention of each head of layer 0, on average}."""
  ids = jax.random.randint(jax.random.key(1), (4, LENGTH), 5, 1000)
  batch = {
    'input_ids': ids,
    'input_mask': jnp.ones_like(ids),
    'segment_ids': jnp.zeros_like(ids),
    'masked_lm_positions': jnp.zeros((4, 1), jnp.int32),
    **more,
  }
  compute = functools.partial(
    heads.PretrainingModel(c).apply, mutable=['intermediates']
  )
  _, found = jax.jit(compute)({'params': init(c)}, batch)
  layer = found['intermediates']['encoder']['layer_0']
  (weights,) = layer['attention']['probabilities']  # [B, H, S, S]
  return {
    o: np.diagonal(weights, o, 2, 3).mean((0, 2)).round(3) for o in offsets
  }


@pytest.mark.parametrize(
  'more, offsets',
  [
    ({'norm': 'pre'}, (-1, 1)),
    ({'causal': True, 'reverse': True}, (1, 2)),
    # Of size 32: 16 pairs.
    ({'num_heads': 4, 'initializer': 'normal'}, (-1, 1, -2, 2)),
  ],
)
def test_each_head_of_the_first_layer_looks_at_its_neighbour(more, offsets):
  c = dataclasses.replace(TINY, **more)
  found = measure(c, range(-5, 6))
  for head, offset in enumerate(offsets):
    assert found[offset][head] > 0.5  # evenly, it would be 1 / 64
    others = [found[o][head] for o in found if o not in (0, offset)]
    assert max(others) < 0.1


def test_all_else_is_as_it_was_and_attention_adds_as_much_at_any_width():
  for hidden, wide in ((64, 0.0791), (128, 0.0559)):
    c = dataclasses.replace(TINY, hidden_size=hidden, num_layers=2)
    random = dataclasses.replace(c, attention_init='random')
    ours, theirs = (
      jax.device_get(param_names.flatten(init(x))) for x in (c, random)
    )
    changed = {name for name in ours if (ours[name] != theirs[name]).any()}
    assert changed == {'embeddings/position/embedding'} | {
      f'encoder/layer_{i}/attention/{part}/kernel'
      for i in (0, 1)
      for part in ('qkv', 'out')
    }
    for name in sorted(changed)[1:]:
      values = ours[name][:, 2] if 'qkv' in name else ours[name]
      assert float(values.std()) == pytest.approx(wide, rel=0.02)
    # Queries and keys of the other layers are not touched.
    name = 'encoder/layer_1/attention/qkv/kernel'
    assert (ours[name][:, :2] == theirs[name][:, :2]).all()


def test_wide_is_what_neighbours_are_without_looking_at_them():
  near = jax.device_get(param_names.flatten(init(TINY)))
  c = dataclasses.replace(TINY, attention_init='wide')
  wide = jax.device_get(param_names.flatten(init(c)))
  c = dataclasses.replace(TINY, attention_init='random')
  random = jax.device_get(param_names.flatten(init(c)))
  name = 'encoder/layer_0/attention/qkv/kernel'
  assert (wide[name][:, 2] == near[name][:, 2]).all()
  assert (wide[name][:, :2] == random[name][:, :2]).all()
  name = 'embeddings/position/embedding'
  assert (wide[name] == random[name]).all()


def test_words_of_the_modern_body_have_a_direction_in_common():
  c = dataclasses.replace(modern_test.CONFIG, attention_init='wide')
  random = dataclasses.replace(c, attention_init='random')
  ours, theirs = (
    jax.device_get(param_names.flatten(init(x, False))) for x in (c, random)
  )
  word = 'embeddings/word/embedding'
  common = ours[word] - theirs[word]
  np.testing.assert_allclose(common, np.tile([-0.0088, 0.0088], (61, 8)), 1e-3)
  out = 'encoder/layer_0/attention/out/kernel'
  assert ours[out].std() == pytest.approx(math.sqrt(2 / (5 * 16)), rel=0.1)
