"""Each detail in which BERT's implementations differ, and who does which."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from bert_jax import config, config_check
from bert_jax.config import recipes
from bert_jax.model import bert_config, encoder, heads
from bert_jax.model.attention import Tokens
from bert_jax.ops import dropout
from tests.model import encoder_test


def with_profile(name, more=''):
  return config.apply_arguments(
    config.pretraining('base'), f'profile={name},{more}'
  )


def test_paper_is_bert_whatever_the_defaults_are():
  assert recipes.PROFILES['paper'] == {
    'model.activation': 'gelu_tanh',
    'model.norm_epsilon': 1e-12,
    'model.initializer': 'truncated_normal',
    'model.attention_init': 'random',
    'model.mask_value': -10_000.0,
    'objective.unigram_bias': False,
    'objective.sampled_words': 0,
    'objective.word_vectors': False,
    'finetuning.head_bias': 'zeros',
    'optimizer.epsilon': 1e-6,
    'optimizer.bias_correction': True,
    'optimizer.clip_unit': 'batch',
    'optimizer.decay_from': 'warmup',
    'data.strip_accents': 'auto',
    'data.negatives': 'input',
  }


@pytest.mark.parametrize('name', recipes.PROFILES)
def test_every_profile_sets_the_same_fields_and_can_work(name):
  assert recipes.PROFILES[name].keys() == recipes.PROFILES['paper'].keys()
  config_check.check(with_profile(name))


def test_gelu_of_hf_is_exact_and_googles_the_approximation():
  values = {
    name: float(
      bert_config.ACTIVATIONS[with_profile(name).model.activation](jnp.ones(()))
    )
    for name in recipes.PROFILES
  }
  # x Phi(x) at 1, and 0.5 (1 + tanh(sqrt(2 / pi) 1.044715)).
  assert values['hf'] == pytest.approx(0.8413447, abs=1e-6)
  assert values['google'] == values['paper'] == pytest.approx(0.8411920, 1e-6)


def test_what_sees_nothing_attends_by_score_or_evenly():
  # Only a row of padding tells: elsewhere exp of either value is 0.
  def spread(name):
    value = recipes.PROFILES[name]['model.mask_value']
    c = dataclasses.replace(encoder_test.SMALL, mask_value=value)
    attention = encoder.SelfAttention(c)
    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    tokens = Tokens(jnp.array([[1], [0]]) * jnp.ones((2, 5), int))
    params = attention.init(jax.random.key(1), x, tokens, True)
    params = jax.tree.map(lambda p: 30 * p, params)
    _, state = attention.apply(params, x, tokens, True, mutable=True)
    (weights,) = state['intermediates']['probabilities']
    return [float(weights[row].max() - weights[row].min()) for row in (0, 1)]

  (plain, google), (same, hf) = spread('google'), spread('hf')
  assert plain == same > 0.1
  assert google > 0.1 and hf == 0
  assert spread('paper') == [plain, google]


def test_dropout_is_where_google_has_it(monkeypatch):
  # After the embeddings' LayerNorm, on attention's probabilities and its
  # output, on the MLP's output; neither inside the MLP nor in the heads.
  bert = heads.PretrainingModel(
    dataclasses.replace(encoder_test.SMALL, num_layers=1)
  )
  found, drop = [], dropout.drop

  def note(x, values, rate):
    found.append(x.shape)
    return drop(x, values, rate)

  monkeypatch.setattr(dropout, 'drop', note)
  keys = {name: jax.random.key(0) for name in ('params', 'dropout')}
  init = functools.partial(bert.init, deterministic=False)
  jax.eval_shape(init, keys, encoder_test.example())
  assert found == [(2, 5, 8), (2, 2, 5, 5), (2, 5, 8), (2, 5, 8)]
