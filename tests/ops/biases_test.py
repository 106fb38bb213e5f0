"""Tests of the gradients of biases, in bfloat16 against float32."""

import collections
import functools
import pydoc_data.topics

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config, param_names
from bert_jax.model import classifier, parameters, precision
from bert_jax.ops import biases
from bert_jax.pretraining import pretrain

ROWS, LENGTH, PREDICTIONS, VOCAB = 64, 64, 10, 500


def test_a_sum_over_more_rows_than_bfloat16_counts_is_right():
  x, bias = jnp.ones((5000, 2, 3), 'bfloat16'), jnp.zeros((2, 3))

  def total(bias):
    return jnp.sum(biases.add(x, bias).astype(jnp.float32))

  # 5,000 itself is no bfloat16 number: counting stops at 256 there.
  assert jax.jit(jax.grad(total))(bias).tolist() == [[5000.0] * 3] * 2


def test_the_bias_is_rounded_to_the_type_of_the_activations():
  found = biases.add(jnp.ones((1, 1), 'bfloat16'), jnp.float32([1 + 2**-8]))
  assert (found.dtype, found.item()) == (jnp.bfloat16, 2.0)


def make_ids():
  """Returns words of Python's help as ids by their frequency, [B, S]."""
  words = ' '.join(pydoc_data.topics.topics.values()).split()
  common = collections.Counter(words).most_common(VOCAB - 4)
  number = {word: i + 4 for i, (word, _) in enumerate(common)}
  ids = [number.get(word, 1) for word in words[: ROWS * LENGTH]]
  return np.array(ids, 'i4').reshape(ROWS, LENGTH)


def make_batch(coherent):
  """If coherent, all predictions of a kind have the same label."""
  rng, ids = np.random.default_rng(0), make_ids()
  chosen = np.stack([rng.permutation(LENGTH)[:PREDICTIONS] for _ in ids])
  labels = np.take_along_axis(ids, chosen, 1)
  # Of half and half, gradients cancel out and what is left is rounding.
  pairs = rng.random(ROWS) < 0.3
  np.put_along_axis(ids, chosen, 3, 1)  # [MASK]
  tokens = np.ones_like(ids)
  return {
    'input_ids': ids,
    'input_mask': tokens,
    'segment_ids': tokens * (np.arange(LENGTH, dtype='i4') > LENGTH // 2),
    'masked_lm_positions': chosen.astype('i4'),
    'masked_lm_ids': np.full_like(labels, 7) if coherent else labels,
    'masked_lm_weights': np.ones(chosen.shape, 'f4'),
    'next_sentence_labels': (pairs * (not coherent)).astype('i4'),
    'next_sentence_weights': np.ones(ROWS, 'f4'),
  }


def small_config(dtype):
  c = config.pretraining('tiny')
  with c.unlocked():
    c.data.vocab_size = VOCAB
    c.model.update(
      num_layers=1,
      hidden_size=16,
      num_heads=2,
      mlp_size=32,
      max_positions=LENGTH,
      dtype=dtype,
      attention='xla',
    )
  return c


def pretraining_loss(module, params, batch):
  sums, _ = pretrain.compute_sums(module, params, batch, None)
  return sums['mlm_loss'] / (ROWS * PREDICTIONS) + sums['nsp_loss'] / ROWS


def classifier_loss(module, params, batch):
  logits = jax.nn.log_softmax(module.apply({'params': params}, batch))
  label = jax.nn.one_hot(batch['next_sentence_labels'], 2)
  return -jnp.sum(logits * label) / ROWS


@functools.cache
def differentiate(kind):
  """Returns functions of a batch, by type: {name: gradient}."""
  found = {}
  for dtype in ('float32', 'bfloat16'):
    module = pretrain.make_module(small_config(dtype))
    loss = pretraining_loss
    if kind == 'classifier':
      loss = classifier_loss
      module = classifier.Classifier(module.config, 2, 0.0)
    params = jax.jit(functools.partial(parameters.init, module))(
      jax.random.key(0)
    )
    # The weights of both are those of bfloat16.
    params = precision.cast(params, 'bfloat16')
    params = jax.tree.map(lambda x: x.astype('float32'), params)
    grad = jax.jit(jax.grad(functools.partial(loss, module)))
    found[dtype] = functools.partial(grad, precision.cast(params, dtype))
  return found


@pytest.mark.parametrize('batch', ['coherent', 'real'])
@pytest.mark.parametrize('kind', ['pretraining', 'classifier'])
def test_gradients_of_biases_are_as_long_as_in_float32(kind, batch):
  grads = {
    dtype: param_names.flatten(grad(make_batch(batch == 'coherent')))
    for dtype, grad in differentiate(kind).items()
  }
  slopes = {}
  for name, exact in grads['float32'].items():
    if name.endswith('bias'):
      exact = np.asarray(exact, np.float64)
      found = np.asarray(grads['bfloat16'][name], np.float64)
      slopes[name] = np.vdot(found, exact) / np.vdot(exact, exact)
  assert 'encoder/layer_0/attention/qkv/bias' in slopes
  wrong = {name: x for name, x in slopes.items() if abs(x - 1) > 0.01}
  assert not wrong
