"""What bert_jax.inference.hidden_states gives for sentences."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.inference import hidden_states
from bert_jax.model import heads
from tests import models

CONFIG = dataclasses.replace(models.CONFIG, num_layers=4, max_positions=40)
ONE = dataclasses.replace(CONFIG, num_layers=1)
TEXTS = ['the cat', ('the dog', 'cat cats the'), 'é ' + 'the ' * 35]


def extract(layers='last', texts=TEXTS, config=CONFIG, **kwargs):
  return list(
    hidden_states.extract(
      models.make_params(config, with_nsp=False),
      config,
      models.TOKENIZER,
      texts,
      layers,
      **kwargs,
    )
  )


def test_each_sentence_has_its_own_tokens_and_no_padding():
  found = extract('all', attention=True, config=ONE)
  assert found[0].tokens == ('[CLS]', 'the', 'cat', '[SEP]')
  assert found[1].tokens == tuple(
    '[CLS] the dog [SEP] cat cat ##s the [SEP]'.split()
  )
  for one, n in zip(found, (4, 9, 38), strict=True):
    assert len(one.tokens) == n
    assert one.hidden.shape == (2, n, 8)  # [L + 1, S, D]
    assert one.attention.shape == (1, 2, n, n)  # [L, H, S, S]
    assert one.hidden.dtype == one.attention.dtype == np.float32
    np.testing.assert_allclose(one.attention.sum(-1), 1, rtol=1e-5)
  # Neighbours and padding change nothing.
  for text, one in zip(TEXTS, found, strict=True):
    (alone,) = extract('all', [text], ONE)
    np.testing.assert_allclose(one.hidden, alone.hidden, rtol=2e-4, atol=1e-5)


def test_the_last_layer_is_what_the_heads_read():
  """The MLM head of the model on the last states gives the model's logits."""
  params = models.make_params(ONE, with_nsp=False)
  ids = jnp.array([models.TOKENIZER.encode('the cat')['input_ids']])
  batch = {
    'input_ids': ids,
    'input_mask': jnp.ones_like(ids),
    'segment_ids': jnp.zeros_like(ids),
    'masked_lm_positions': jnp.arange(4)[None],
  }
  bert = heads.PretrainingModel(ONE, False)
  expected, _ = jax.jit(bert.apply)({'params': params}, batch)
  logits = heads.MlmHead(ONE).apply(
    {'params': params['mlm']},
    extract(config=ONE)[0].hidden[None],
    params['embeddings']['word']['embedding'],
  )
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_choices_of_layers_are_made_of_all():
  (states,) = (x.hidden for x in extract('all', TEXTS[1:2]))

  def chosen(layers):
    return extract(layers, TEXTS[1:2])[0].hidden

  np.testing.assert_allclose(chosen('sum_last_4'), states[1:].sum(0), rtol=1e-5)
  joined = chosen('concat_last_4')
  assert joined.shape == (9, 32)
  np.testing.assert_array_equal(joined[:, :8], states[1])
  np.testing.assert_array_equal(joined[:, 24:], states[4])


@pytest.mark.parametrize('reverse', [False, True])
def test_attention_is_zero_where_a_causal_model_may_not_look(reverse):
  """Maps are in the order of the text, whichever way the model reads it."""
  config = dataclasses.replace(ONE, causal=True, reverse=reverse)
  maps = extract(config=config, attention=True)[1].attention
  hidden = np.tril(maps, -1) if reverse else np.triu(maps, 1)
  assert hidden.max() == 0
  first = -1 if reverse else 0
  np.testing.assert_array_equal(maps[:, :, first, first], 1)
  np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'texts': ['the', 'the ' * 39]}, 'sentence 2 has 41 tokens.* takes 40'),
    ({'layers': 'sum_last_4', 'config': models.CONFIG}, 'needs 4 layers'),
  ],
)
def test_mistakes_are_explained(changes, message):
  with pytest.raises(errors.UserError, match=message):
    extract(**changes)
  assert extract(texts=[]) == []
