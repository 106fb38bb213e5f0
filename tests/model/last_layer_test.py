"""Tests of the last layer, computed only where a head reads it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import bert_config, heads, parameters

# B=2 S=8 P=3 D=8 H=2 F=12 L=2 N=2.
SMALL = bert_config.BertConfig(
  11, 8, 2, 2, 12, max_positions=8, dropout=0.0, attention_dropout=0.0
)
ROWS = {
  'input_ids': jnp.arange(16).reshape(2, 8) % 11,
  'input_mask': (jnp.arange(8)[None] < jnp.array([[8], [6]])).astype(jnp.int32),
  'segment_ids': (jnp.arange(8) > 3).astype(jnp.int32)[None].repeat(2, 0),
  'masked_lm_positions': jnp.array([[1, 4, 7], [2, 5, 0]]),
  'masked_lm_ids': jnp.array([[3, 4, 5], [6, 7, 0]]),
}
PACKED = {
  'sequence_ids': jnp.array(
    [[1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 1, 2, 2, 0, 0]]
  ),
  'position_ids': jnp.array(
    [[0, 1, 2, 0, 1, 2, 3, 4], [0, 1, 2, 3, 0, 1, 0, 0]]
  ),
  'cls_positions': jnp.array([[0, 3], [0, 4]]),
}


def compute(last_layer, nsp, batch, **changes):
  """Returns the heads' outputs and the parameters' gradient."""
  c = dataclasses.replace(SMALL, last_layer=last_layer, **changes)
  module = heads.PretrainingModel(c, nsp)
  plain = dataclasses.replace(SMALL, norm=c.norm, num_layers=c.num_layers)
  new = heads.PretrainingModel(plain, nsp)
  params = parameters.init(new, jax.random.key(0))

  def apply(params):
    words, pairs = module.apply({'params': params}, batch)
    out = words, pairs if nsp else jnp.zeros(())
    return sum(
      jnp.sum(x * jnp.cos(jnp.arange(x.size)).reshape(x.shape)) for x in out
    ), out

  return jax.jit(jax.grad(apply, has_aux=True))(params)


@pytest.mark.parametrize(
  'nsp, batch, changes',
  [
    (False, ROWS, {'norm': 'pre'}),
    (True, ROWS | PACKED, {'flat_rows': True}),
    (True, ROWS, {'remat': 'layer'}),
    (True, ROWS, {'num_layers': 1, 'separate_heads': True}),
  ],
  ids=['pre', 'packed', 'remat', 'one layer'],
)
def test_outputs_and_gradients_are_those_of_the_whole_layer(
  nsp, batch, changes
):
  whole, part = (
    compute(x, nsp, batch, **changes) for x in ('all', 'predicted')
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
    part,
    whole,
  )


def test_flops_are_those_of_the_products_that_are_left():
  """Queries, outputs and the MLP at 3 + 1 of 8 tokens; keys, values at all."""
  part = dataclasses.replace(SMALL, last_layer='predicted')
  saved = SMALL.flops_per_sequence(8, 3) - part.flops_per_sequence(8, 3)
  weights = 2 * 8 * 8 + 2 * 8 * 12  # of query and output; of the MLP
  assert saved == 6 * weights * 4 + 12 * 8 * 8 * 4
