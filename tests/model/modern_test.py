"""The modern body beside ModernBERT's formulas in NumPy, and its packed rows."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import param_names
from bert_jax.inference import fine_tuned
from bert_jax.model import bert_config, classifier, heads

V, D, L, H, F = 61, 16, 4, 2, 24
CONFIG = bert_config.BertConfig(
  *(V, D, L, H, F),
  dropout=0.0,
  attention_dropout=0.0,
  activation='gelu',
  norm='pre',
  norm_epsilon=1e-5,
  body='modern',
  window=6,
  rope_theta=100.0,
  local_rope_theta=7.0,
)


@pytest.fixture(scope='module')
def params():
  rng, shapes = np.random.default_rng(0), jax.eval_shape(make_new)
  return param_names.map_named(
    lambda name, x: rng.normal('norm' in name, 0.3, x.shape).astype('f4'),
    shapes,
  )


def make_new():
  ids = jnp.ones((1, 8), int)
  return heads.PretrainingModel(CONFIG, False).init(
    jax.random.key(0), make_batch(ids)
  )['params']


def make_batch(ids, **more):
  every = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
  ones = jnp.ones_like(ids)
  given = {'input_ids': ids, 'input_mask': ones, 'segment_ids': 0 * ones}
  return given | {'masked_lm_positions': every} | more


def compute_logits(params, batch, **changes):
  config = dataclasses.replace(CONFIG, **changes)
  model = heads.PretrainingModel(config, False)
  with jax.default_matmul_precision('float32'):
    return np.array(model.apply({'params': params}, batch)[0])


def compute_literally(params, ids):
  """Returns logits [S, V] of one row of ids."""
  w = {k: np.float64(x) for k, x in param_names.flatten(params).items()}
  erf = np.vectorize(math.erf)

  def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[name]

  def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2

  def turn(x, theta):  # [S, K]
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] / theta ** (np.arange(half) / half)
    a, b = x[:, :half], x[:, half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], 1)

  x = norm(w['embeddings/word/embedding'][ids], 'embeddings/norm/scale')
  away = np.abs(np.subtract.outer(*[np.arange(len(ids))] * 2))
  for i in range(L):
    at = f'encoder/layer_{i}/'
    y = norm(x, f'{at}attention_norm/scale') if i else x
    everywhere = i % 3 == 0
    for h in range(H):
      q, k, v = (y @ w[f'{at}attention/qkv/kernel'][:, n, h] for n in range(3))
      theta = 100.0 if everywhere else 7.0
      scores = turn(q, theta) @ turn(k, theta).T / math.sqrt(D // H)
      seen = np.exp(scores) * (everywhere | (away <= 3))
      mixed = seen / seen.sum(1, keepdims=True) @ v
      x = x + mixed @ w[f'{at}attention/out/kernel'][h]
    y = norm(x, f'{at}mlp_norm/scale') @ w[f'{at}mlp_in/kernel'].reshape(D, -1)
    x = x + (gelu(y[:, :F]) * y[:, F:]) @ w[f'{at}mlp_out/kernel']
  x = norm(x, 'encoder/final_norm/scale')
  x = norm(gelu(x @ w['mlm/transform/kernel']), 'mlm/norm/scale')
  return x @ w['embeddings/word/embedding'].T + w['mlm/bias']


@pytest.mark.parametrize('last_layer', ['all', 'predicted'])
@pytest.mark.parametrize('attention', ['xla', 'recompute'])
def test_logits_are_those_of_the_formulas(params, attention, last_layer):
  ids = np.random.default_rng(1).integers(V, size=(2, 19))
  how = {'attention': attention, 'last_layer': last_layer}
  logits = compute_logits(params, make_batch(jnp.array(ids)), **how)
  wanted = np.stack([compute_literally(params, row) for row in ids])
  np.testing.assert_allclose(logits, wanted, atol=3e-5 * abs(wanted).max())


def test_packed_documents_are_as_if_alone(params):
  ids = jnp.array(np.random.default_rng(2).integers(V, size=(1, 24)))
  sizes = np.array([9, 11])
  numbers = jnp.repeat(jnp.array([1, 2, 0]), jnp.array([*sizes, 4]))[None]
  places = jnp.concatenate([jnp.arange(n) for n in (*sizes, 4)])[None]
  packed = make_batch(ids, sequence_ids=numbers, position_ids=places)
  packed['input_mask'] = (numbers > 0).astype(int)
  logits = compute_logits(params, packed)[0]
  alone = [compute_literally(params, np.array(ids[0, a:b]))
           for a, b in ((0, 9), (9, 20))]  # fmt: skip
  wanted = np.concatenate(alone)
  np.testing.assert_allclose(logits[:20], wanted, atol=3e-5 * abs(wanted).max())

  def sum_of_second(table):
    own = {**params, 'embeddings': {**params['embeddings'],
                                    'word': {'embedding': table}}}  # fmt: skip
    model = heads.PretrainingModel(CONFIG, False)
    # Of hidden states, since the tied decoder reads the table, too.
    states = model.apply({'params': own}, packed, True, method='encode')
    return states[0, 9:20].sum()

  gradient = jax.grad(sum_of_second)(params['embeddings']['word']['embedding'])
  first_only = np.setdiff1d(ids[0, :9], ids[0, 9:20])
  assert len(first_only) > 3
  assert not gradient[first_only].any()
  assert gradient[ids[0, 9:20]].all()


def test_initial_weights_that_write_to_the_stream_are_smaller_with_depth():
  new = param_names.flatten(jax.tree.map(jnp.std, make_new()))
  for name, x in new.items():
    if name.endswith('kernel') or 'word' in name:
      into = any(part in name for part in ('out/', 'transform'))
      wanted = 0.0176 / math.sqrt(2 * L) if into else 0.0176
      np.testing.assert_allclose(x, wanted, rtol=0.2, err_msg=name)


@pytest.mark.parametrize('read', ['cls', 'mean', 'tokens'])
def test_a_head_for_classes_has_the_layers_of_the_mlm_head(params, read):
  mask = jnp.array([[1] * 7 + [0] * 2, [1] * 4 + [0] * 5])
  ids = np.random.default_rng(3).integers(V, size=(2, 9))
  batch = make_batch(jnp.array(ids), input_mask=mask)
  config = dataclasses.replace(CONFIG, pooling=read.replace('tokens', 'cls'))
  kernel = np.linspace(-1, 1, 3 * D, dtype='f4').reshape(D, 3)
  bias = np.array([1, 2, 3], 'f4')
  task = 'tagging' if read == 'tokens' else 'classification'
  layers = {name: params['mlm'][name] for name in ('transform', 'norm')}
  head = classifier.Head(kernel, bias, 'abc', 9, (), task, transform=layers)
  variables = {'params': head.add_to(params)}
  module = fine_tuned.make_head_module(head, config)
  with jax.default_matmul_precision('float32'):
    logits = np.array(module.apply(variables, batch))
    states = np.array(module.apply(variables, batch, True, method='encode'))
  if read == 'cls':
    states = states[:, 0]
  elif read == 'mean':
    states = np.stack([states[0, :7].mean(0), states[1, :4].mean(0)])
  x = states @ layers['transform']['kernel']
  x = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
  x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
  wanted = (x * layers['norm']['scale']) @ kernel + bias
  np.testing.assert_allclose(logits, wanted, atol=3e-5)


def test_new_classifiers_keep_the_size_of_what_layer_norm_returns():
  module = classifier.Classifier(CONFIG, 400, 0.0)
  new = module.init(jax.random.key(0), make_batch(jnp.ones((1, 8), int)))
  kernel = new['params']['classifier']['kernel']
  np.testing.assert_allclose(kernel.std(), 0.88 * D**-0.5, rtol=0.03)
