"""Tests of which weights are rounded, and what products round."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import finetuning, inference, param_names
from bert_jax.model import parameters, precision
from bert_jax.ops import fused_attention
from bert_jax.pretraining import pretrain
from tests import training

ROUNDED = {
  'embeddings/word/embedding',
  'encoder/layer_0/attention/out/kernel',
  'encoder/layer_0/attention/qkv/kernel',
  'encoder/layer_0/mlp_in/kernel',
  'encoder/layer_0/mlp_out/kernel',
  'mlm/transform/kernel',
  'pooler/kernel',
}


def make(dtype='bfloat16'):
  c = training.small_config(model__dtype=dtype)
  module = pretrain.make_module(c)
  return module, jax.jit(lambda key: parameters.init(module, key))(
    jax.random.key(0)
  )


def test_what_products_multiply_by_is_rounded_and_nothing_else():
  found = param_names.flatten(precision.round_weights(make()[1], 'bfloat16'))
  assert {n for n, x in found.items() if x.dtype == jnp.bfloat16} == ROUNDED
  assert all(x.dtype == 'float32' for n, x in found.items() if n not in ROUNDED)


def lowered(asked, dtype='float32'):
  """Returns the StableHLO of a loss with dropout and its gradient."""
  module, params = make(dtype)
  batch = training.make_batch(0)

  def loss(params):
    found, _ = pretrain.compute_sums(module, params, batch, jax.random.key(1))
    return found['mlm_loss'] + found['nsp_loss']

  with precision.set_products(asked, dtype):
    step = jax.jit(jax.value_and_grad(loss))
    return step.lower(precision.cast(params, dtype)).as_text()


def products(text):
  """Returns [(precision, types)] of each product."""
  return [
    (
      (re.findall(r'precision = \[(\w+), \1\]', line) or ['DEFAULT'])[0],
      re.findall(r'x(f32|bf16)>', line),
    )
    for line in text.split('\n')
    if 'stablehlo.dot_general' in line
  ]


@pytest.mark.parametrize(
  ('asked', 'found'),
  [
    ('float32', 'HIGHEST'),
    ('tensorfloat32', 'HIGH'),
    ('bfloat16', 'DEFAULT'),
  ],
)
def test_all_products_of_float32_and_of_their_gradients_are_as_asked(
  asked, found
):
  kinds = [kind for kind, _ in products(lowered(asked))]
  # By one layer: qkv, scores, values, out and two of the MLP; then transform,
  # logits, pooler and NSP head; each has two gradients.
  assert len(kinds) > 3 * 10
  others = [kind for kind in kinds if kind != found]
  # The rows of masked tokens, and the gradient of that, are exact.
  assert others == ['HIGHEST'] * (0 if asked == 'float32' else 2)


def test_of_bfloat16_nothing_is_asked():
  with jax.default_matmul_precision('float32'):
    found = lowered('float32', 'bfloat16')
  assert found == lowered('bfloat16', 'bfloat16')
  assert ('DEFAULT', ['bf16'] * 3) in products(found)


def test_attention_kernels_are_exact_whatever_is_asked():
  def attend(qkv):
    return fused_attention.attend(
      qkv,
      jnp.zeros((3, 2, 64)),
      np.ones((1, 128), np.int32),
      None,
      rate=0.0,
      mask_value=-10_000.0,
    ).sum()

  with precision.set_products('tensorfloat32', 'float32'):
    text = str(jax.make_jaxpr(jax.grad(attend))(jnp.ones((1, 128, 3, 2, 64))))
  kinds = re.findall(r'precision=\(?Precision.(\w+)', text)
  assert kinds and set(kinds) == {'HIGHEST'}


PLATFORMS = 'tpu', 'cuda'


def assert_exact(text):
  kinds = [kind for kind, _ in products(text)]
  assert len(kinds) > 5 and set(kinds) == {'HIGHEST'}


@pytest.mark.parametrize('platform', PLATFORMS)
def test_no_product_of_inference_rounds_its_operands(platform):
  module, params = make('float32')
  batch = training.make_batch(0)
  compute = precision.jit_inference()(
    lambda p: module.apply({'params': p}, batch)
  )
  traced = compute.trace(params)
  assert_exact(traced.lower(lowering_platforms=(platform,)).as_text())


@pytest.mark.parametrize('package', [inference, finetuning])
def test_predictions_are_computed_by_nothing_else(package):
  texts = [x.read_text() for x in pathlib.Path(*package.__path__).glob('*.py')]
  assert len(texts) > 5
  assert 'jax.jit' not in ''.join(texts)
