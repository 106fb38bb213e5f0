"""Tests of BERT with heads for classes and tags, and as GPT has them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model import classifier, heads
from bert_jax.ops import tied_decoder
from tests import models

KERNEL = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
HEAD = classifier.Head(
  KERNEL, np.arange(3.0, dtype='f4'), ('a', 'b', 'c'), 7, ()
)
QUIET = dataclasses.replace(models.CONFIG, dropout=0.0, attention_dropout=0.0)
BATCH = {
  'input_ids': jnp.array([[2, 5, 6, 3, 7, 3, 0]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 1, 1, 0]]),
  'segment_ids': jnp.array([[0, 0, 0, 0, 1, 1, 0]]),
}


@functools.cache
def _jit(module, method=None):
  return jax.jit(
    functools.partial(module.apply, method=method), static_argnums=2
  )


def compute(key=None, rate=0.5):
  """Returns logits [1, 3] of a model whose other dropout is off."""
  params = HEAD.add_to(models.make_params())
  rngs = None if key is None else {'dropout': jax.random.key(key)}
  return _jit(classifier.Classifier(QUIET, 3, rate))(
    {'params': params}, BATCH, key is None, rngs=rngs
  )


def test_logits_are_a_product_with_what_nsp_was_trained_on():
  module = heads.PretrainingModel(models.CONFIG)
  batch = BATCH | {'masked_lm_positions': jnp.array([[1]])}
  _, sown = jax.jit(module.apply, static_argnames='mutable')(
    {'params': models.make_params()}, batch, mutable='intermediates'
  )
  [pooled] = sown['intermediates']['pooled']
  expected = pooled @ KERNEL + jnp.arange(3.0)[None]
  np.testing.assert_allclose(compute(), expected, atol=1e-6)


def test_dropout_before_the_head_is_for_training_only():
  assert jnp.array_equal(compute(), compute())
  assert not jnp.allclose(compute(key=0), compute(key=1))
  np.testing.assert_allclose(compute(key=0, rate=0.0), compute(), atol=1e-6)


def compute_of(batch, params=None, units=0, **changes):
  """Returns logits of a model whose config differs."""
  config = dataclasses.replace(models.CONFIG, **changes)
  module = classifier.Classifier(config, 3, 0.0, units)
  params = params or HEAD.add_to(models.make_params())
  return _jit(module)({'params': params}, batch)


def test_a_left_to_right_model_is_read_at_the_last_token():
  """What follows that token changes nothing but its place."""
  short = {name: x[:, :4] for name, x in BATCH.items()}
  cut = BATCH | {'input_mask': jnp.array([[1, 1, 1, 1, 0, 0, 0]])}
  np.testing.assert_allclose(
    compute_of(cut, causal=True), compute_of(short, causal=True), atol=1e-6
  )
  moved = compute_of(BATCH, causal=True)
  assert jnp.abs(moved - compute_of(cut, causal=True)).max() > 1e-4


TWO = {
  'input_ids': jnp.array([[2, 5, 6, 3, 0], [2, 7, 5, 3, 0]]),
  'input_mask': jnp.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
  'segment_ids': jnp.zeros((2, 5), jnp.int32),
}


def pad(batch, count=2):
  return {name: jnp.pad(x, ((0, 0), (0, count))) for name, x in batch.items()}


def change(batch, position):
  """Returns the batch with another token in its first row."""
  ids = batch['input_ids'].at[0, position].set(8)
  return batch | {'input_ids': ids}


@functools.cache
def tag(config):
  """Returns a function of a batch (and a key of dropout): logits [2, S, 3]."""
  module = classifier.Classifier(config, 3, 0.5, 0, True)
  params = HEAD._replace(task='tagging').add_to(models.make_params())

  def apply(batch, key=None):
    rngs = None if key is None else {'dropout': jax.random.key(key)}
    return module.apply({'params': params}, batch, key is None, rngs=rngs)

  return jax.jit(apply, static_argnums=1)


def test_tags_are_a_product_with_the_hidden_states():
  params = HEAD._replace(task='tagging').add_to(models.make_params())
  module = classifier.Classifier(QUIET, 3, 0.5, 0, True)
  hidden = module.apply({'params': params}, TWO, True, method='encode')
  expected = hidden @ KERNEL + jnp.arange(3.0)[None, None]
  found = tag(QUIET)(TWO)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_allclose(tag(QUIET)(pad(TWO))[:, :5], found, atol=1e-5)
  assert not jnp.allclose(tag(QUIET)(TWO, 0), found)


CAUSAL = dataclasses.replace(models.CONFIG, causal=True, dropout=0.0)


@functools.cache
def make_gpt_params():
  head = {'kernel': KERNEL, 'bias': np.arange(3, dtype='f4')}
  return models.make_params(CAUSAL, with_nsp=False) | {'classifier': head}


def run_gpt(batch, method=None):
  module = classifier.GptClassifier(CAUSAL, 3, 0.5)
  return _jit(module, method)({'params': make_gpt_params()}, batch)


def test_gpt_classifies_the_last_token_without_a_pooler():
  logits = run_gpt(TWO)
  np.testing.assert_allclose(run_gpt(pad(TWO)), logits, atol=1e-5)
  for position in range(4):
    other = run_gpt(change(TWO, position))
    assert jnp.abs(other - logits)[0].max() > 1e-4
    np.testing.assert_array_equal(other[1], logits[1])


def test_gpt_predicts_tokens_as_in_pretraining():
  logits, inputs = run_gpt(TWO, 'with_tokens')
  np.testing.assert_allclose(logits, run_gpt(TWO), atol=1e-6)
  x, table, bias, labels = inputs
  found = tied_decoder.compute_logits(x, table, bias, 11)
  positions = jnp.broadcast_to(jnp.arange(4), (2, 4))
  module = heads.PretrainingModel(CAUSAL, with_nsp=False)
  params = {k: x for k, x in make_gpt_params().items() if k != 'classifier'}
  expected, _ = jax.jit(module.apply)(
    {'params': params}, TWO | {'masked_lm_positions': positions}
  )
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_array_equal(labels, table[TWO['input_ids'][:, 1:]])


LSTM_MASK = jnp.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@functools.cache
def make_lstm():
  init = jax.jit(classifier.BiLstm(3).init)
  return init(jax.random.key(1), make_states(), LSTM_MASK)


def make_states():
  return jax.random.normal(jax.random.key(0), (2, 5, 4))


_LSTM = jax.jit(classifier.BiLstm(3).apply)


def run_lstm(x, mask=LSTM_MASK):
  return _LSTM(make_lstm(), x, mask)


def step_lstm(params, state, x):
  """Computes an LSTM's (cell state, output) after a token."""

  def gate(name):
    i, h = params[f'i{name}'], params[f'h{name}']
    return x @ i['kernel'] + state[1] @ h['kernel'] + h['bias']

  i, f, o = (jax.nn.sigmoid(gate(name)) for name in 'ifo')
  cell = f * state[0] + i * jnp.tanh(gate('g'))
  return cell, o * jnp.tanh(cell)


@jax.jit
def read_lstm(params, x):
  """Returns the outputs [S, 3] of an LSTM for x [S, D]."""
  state, outputs = (jnp.zeros(3), jnp.zeros(3)), []
  for row in x:
    state = step_lstm(params, state, row)
    outputs.append(state[1])
  return jnp.stack(outputs)


def test_outputs_are_those_of_lstms_that_read_from_both_ends():
  params, x = make_lstm()['params'], make_states()[0, :3]
  for i in range(2):
    back = read_lstm(params[f'backward_{i}'], x[::-1])[::-1]
    x = jnp.concatenate([read_lstm(params[f'forward_{i}'], x), back], -1)
  np.testing.assert_allclose(run_lstm(make_states())[0, :3], x, atol=1e-6)
  summary = classifier.summarise_lstm(run_lstm(make_states()), LSTM_MASK)
  expected = jnp.concatenate([x[2, :3], x[0, 3:]])
  np.testing.assert_allclose(summary[0], expected, atol=1e-6)


def test_padding_is_ignored_by_lstms():
  x, found = make_states(), run_lstm(make_states())
  other = run_lstm(x.at[0, 3:].set(9.0))
  np.testing.assert_array_equal(found[0, :3], other[0, :3])
  alone = run_lstm(x[:1, :3], LSTM_MASK[:1, :3])
  np.testing.assert_allclose(found[:1, :3], alone, atol=1e-6)
  summaries = (classifier.summarise_lstm(y, LSTM_MASK) for y in (found, other))
  np.testing.assert_array_equal(*summaries)


def test_flops_of_lstms_are_six_per_weight_and_token():
  leaves = jax.tree_util.tree_leaves_with_path(make_lstm()['params'])
  weights = sum(x.size for path, x in leaves if path[-1].key == 'kernel')
  # 2 directions, 4 gates: 3 x (4 + 3), then 3 x (6 + 3).
  assert weights == 2 * 4 * 3 * (7 + 9)
  assert classifier.count_lstm_flops(5, 4, 3) == 6 * 5 * weights
