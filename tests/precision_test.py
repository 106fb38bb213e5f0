"""Tests of which weights are rounded."""

import jax
import jax.numpy as jnp

from bert_jax import names, precision
from bert_jax.tasks import pretrain
from tests import training

ROUNDED = {
  'encoder/layer_0/attention/out/bias',
  'encoder/layer_0/attention/out/kernel',
  'encoder/layer_0/attention/qkv/bias',
  'encoder/layer_0/attention/qkv/kernel',
  'encoder/layer_0/mlp_in/bias',
  'encoder/layer_0/mlp_in/kernel',
  'encoder/layer_0/mlp_out/bias',
  'encoder/layer_0/mlp_out/kernel',
  'mlm/transform/bias',
  'mlm/transform/kernel',
  'pooler/bias',
  'pooler/kernel',
}


def make(dtype='bfloat16'):
  c = training.small_config(model__dtype=dtype)
  module = pretrain.trained_module(c)
  return module, jax.jit(lambda key: pretrain.init(module, key))(
    jax.random.key(0)
  )


def test_what_products_multiply_by_is_rounded_and_nothing_else():
  found = names.flatten(precision.cast(make()[1], 'bfloat16'))
  assert {n for n, x in found.items() if x.dtype == jnp.bfloat16} == ROUNDED
  assert all(x.dtype == 'float32' for n, x in found.items() if n not in ROUNDED)


def test_the_layers_would_have_rounded_to_the_same():
  module, params = make()
  batch = training.make_batch(0)

  def sums(p):
    return jax.jit(lambda p: pretrain.sums(module, p, batch, None))(p)

  assert sums(precision.cast(params, 'bfloat16')) == sums(params)
