"""Tests of biases and GELU, and of their gradients."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import param_names
from bert_jax.model import classifier, parameters, precision
from bert_jax.ops import elementwise
from bert_jax.pretraining import pretrain
from tests import training

ROWS, LENGTH, PREDICTIONS, VOCAB = 64, 64, 10, 500


def test_a_sum_over_more_rows_than_bfloat16_counts_is_right():
  x, bias = jnp.ones((5000, 2, 3), 'bfloat16'), jnp.zeros((2, 3))

  def total(bias):
    return jnp.sum(elementwise.add_bias(x, bias).astype(jnp.float32))

  # 5,000 itself is no bfloat16 number: counting stops at 256 there.
  assert jax.jit(jax.grad(total))(bias).tolist() == [[5000.0] * 3] * 2


def test_the_bias_is_rounded_to_the_type_of_the_activations():
  found = elementwise.add_bias(
    jnp.ones((1, 1), 'bfloat16'), jnp.float32([1 + 2**-8])
  )
  assert (found.dtype, found.item()) == (jnp.bfloat16, 2.0)


def test_a_bias_of_rows_is_the_same_and_for_nvidia_gpus_only(monkeypatch):
  x, bias = jnp.arange(24.0).reshape(2, 2, 2, 3), jnp.arange(6.0).reshape(2, 3)

  def run(as_rows):
    y, pull = jax.vjp(lambda *a: elementwise.add_bias(*a, as_rows), x, bias)
    return y, *pull(x * x)

  traced = jax.jit(lambda: run(True)[0]).trace()
  for platform in ('cuda', 'cpu'):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ('tensor<4x6xf32>' in text) == (platform == 'cuda')
  plain = run(False)
  monkeypatch.setattr(
    jax.lax, 'platform_dependent', lambda *x, cuda, default: cuda(*x)
  )
  jax.tree.map(np.testing.assert_array_equal, run(True), plain)


def pretraining_loss(module, params, batch):
  sums, _ = pretrain.compute_sums(module, params, batch, None)
  return sums['mlm_loss'] / (ROWS * PREDICTIONS) + sums['nsp_loss'] / ROWS


def classifier_loss(module, params, batch):
  logits = module.apply({'params': params}, batch)
  assert logits.dtype == 'float32'
  chosen = jnp.arange(ROWS), batch['next_sentence_labels']
  return -jnp.mean(jax.nn.log_softmax(logits)[chosen])


@pytest.mark.parametrize('loss', [pretraining_loss, classifier_loss])
def test_gradients_of_biases_are_as_long_as_in_float32(loss):
  rng = np.random.default_rng(0)
  batch = {
    'input_ids': rng.integers(4, VOCAB, (ROWS, LENGTH)),
    'input_mask': np.ones((ROWS, LENGTH), 'i4'),
    'segment_ids': np.zeros((ROWS, LENGTH), 'i4'),
    'masked_lm_positions': np.full((ROWS, PREDICTIONS), range(PREDICTIONS)),
    # One label for all, so that gradients do not cancel out.
    'masked_lm_ids': np.full((ROWS, PREDICTIONS), 7),
    'masked_lm_weights': np.ones((ROWS, PREDICTIONS), 'f4'),
    # Of half and half, they would, and what is left is rounding.
    'next_sentence_labels': rng.binomial(1, 0.3, ROWS),
    'next_sentence_weights': np.ones(ROWS, 'f4'),
  }
  grads = {}
  for dtype in ('float32', 'bfloat16'):
    c = training.small_config(
      data__vocab_size=VOCAB,
      model__hidden_size=16,
      model__mlp_size=32,
      model__max_positions=LENGTH,
      model__dtype=dtype,
    )
    module = pretrain.make_module(c)
    if loss is classifier_loss:
      module = classifier.Classifier(module.config, 2, 0.0)
    params = jax.jit(functools.partial(parameters.init, module))(
      jax.random.key(0)
    )
    # The weights of both are those of bfloat16.
    params = precision.cast(params, 'bfloat16')
    params = jax.tree.map(lambda x: x.astype('float32'), params)
    grad = jax.jit(jax.grad(functools.partial(loss, module)))
    found = grad(precision.cast(params, dtype), batch)
    grads[dtype] = param_names.flatten(found)
  slopes = {}
  for name, exact in grads['float32'].items():
    if name.endswith('bias'):
      exact = np.asarray(exact, np.float64)
      found = np.asarray(grads['bfloat16'][name], np.float64)
      slopes[name] = np.vdot(found, exact) / np.vdot(exact, exact)
  assert 'encoder/layer_0/attention/qkv/bias' in slopes
  wrong = {name: x for name, x in slopes.items() if abs(x - 1) > 0.01}
  assert not wrong


POINTS = jnp.array([-9.0, -3.0, -1.0, -0.1, 0.0, 0.1, 0.7, 1.0, 3.0, 9.0])


def slopes(function, x):
  return jax.grad(lambda x: function(x).astype('float32').sum())(x)


def test_gelu_is_that_of_flax_and_so_is_its_gradient():
  np.testing.assert_allclose(
    elementwise.gelu_tanh(POINTS),
    nn.gelu(POINTS, approximate=True),
    rtol=1e-6,
    atol=4e-7,
  )
  np.testing.assert_allclose(
    slopes(elementwise.gelu_tanh, POINTS),
    slopes(nn.gelu, POINTS),
    rtol=1e-5,
    atol=1e-6,
  )


def test_gelu_in_bfloat16_is_rounded_once():
  """flax's constants would be rounded, too: 0.797 for sqrt(2 / pi)."""
  small = POINTS.astype('bfloat16')
  wide = small.astype('float32')
  np.testing.assert_array_equal(
    elementwise.gelu_tanh(small), elementwise.gelu_tanh(wide).astype('bfloat16')
  )
  np.testing.assert_array_equal(
    slopes(elementwise.gelu_tanh, small),
    slopes(elementwise.gelu_tanh, wide).astype('bfloat16'),
  )


def test_gelu_of_nvidia_gpus_is_the_same(monkeypatch):
  """There tanh is computed by a sigmoid, in fewer operations."""
  points = jnp.linspace(-40, 40, 8001)

  def both(x):
    return elementwise.gelu_tanh(x), slopes(elementwise.gelu_tanh, x)

  (value, slope), small = both(points), both(points.astype('bfloat16'))
  monkeypatch.setattr(
    jax.lax, 'platform_dependent', lambda *x, cuda, default: cuda(*x)
  )
  found = both(points)
  np.testing.assert_allclose(found[0], value, rtol=1e-6, atol=1e-6)
  np.testing.assert_allclose(found[1], slope, rtol=1e-5, atol=1e-5)
  for one, other in zip(both(points.astype('bfloat16')), small, strict=True):
    one, other = one.astype('float32'), other.astype('float32')
    np.testing.assert_allclose(one, other, rtol=2**-7, atol=1e-5)


def test_nvidia_gpus_compute_gelu_again_for_its_gradient():
  grad = jax.jit(lambda x: slopes(elementwise.gelu_tanh, x)).trace(POINTS)
  for platform in ('cuda', 'cpu', 'tpu'):
    text = grad.lower(lowering_platforms=(platform,)).as_text()
    assert text.count('optimization_barrier') == 2 * (platform == 'cuda')
