"""What is found in place of [MASK]."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.inference.fill import fill
from bert_jax.model import bert_config, heads
from bert_jax.tokenization.tokenizer import Tokenizer
from tests import models

VOCAB = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog bird ran sat'.split()
TOKENIZER = Tokenizer(tuple(VOCAB), lowercase=True)


def make_model(vocab_size=11, causal=False, reverse=False):
  config = bert_config.BertConfig(
    vocab_size=vocab_size,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    mlp_size=12,
    max_positions=9,
    causal=causal,
    reverse=reverse,
  )
  return models.make_params(config, with_nsp=False), config


def make_certain_model(vocab_size=11):
  """Returns a model that expects cat 1/2, dog 1/4, bird 1/8 everywhere."""
  params, config = make_model(vocab_size)
  params['mlm']['norm'] = {'scale': np.zeros(8), 'bias': np.zeros(8)}
  bias = np.full(vocab_size, -1e4)
  bias[6:10] = np.log([1 / 2, 1 / 4, 1 / 8, 1 / 8])
  params['mlm']['bias'] = bias
  return jax.tree.map(np.float32, params), config


def expect(params, config, ids, places):
  """Returns the probabilities of words at places, of a row without padding."""
  ids = jnp.array([ids])
  batch = {
    'input_ids': ids,
    'input_mask': jnp.ones_like(ids),
    'segment_ids': jnp.zeros_like(ids),
    'masked_lm_positions': jnp.array([places]),
  }
  bert = heads.PretrainingModel(config, False)
  mlm, _ = jax.jit(bert.apply)({'params': params}, batch)
  return jax.nn.softmax(mlm)[0]  # [P, V]


def fill_in(params, config, sentence, top=5):
  return fill(params, config, TOKENIZER, sentence, top)


def test_the_likeliest_words_come_first_for_each_mask():
  found = fill_in(*make_certain_model(), 'the [MASK] ran [MASK]', top=3)
  for words in found:
    assert [word for word, _ in words] == ['cat', 'dog', 'bird']
    np.testing.assert_allclose([p for _, p in words], [1 / 2, 1 / 4, 1 / 8])
  assert len(found) == 2


def test_rows_without_a_word_get_no_probability():
  params, config = make_certain_model(vocab_size=16)
  params['mlm']['bias'][11:] = 9
  assert fill_in(params, config, 'the [MASK]', top=1)[0][0][0] == 'cat'
  assert fill_in(params, config, 'the [MASK]', top=1)[0][0][1] == 0.5


def test_each_mask_is_read_at_its_place_and_padding_changes_nothing():
  params, config = make_model()
  found = fill_in(params, config, '[MASK] ran the [MASK]', top=11)
  expected = expect(params, config, [2, 4, 9, 5, 4, 3], [1, 4])
  for words, row in zip(found, expected, strict=True):
    for word, probability in words:
      np.testing.assert_allclose(probability, row[VOCAB.index(word)], rtol=1e-4)
  assert found[0] != found[1]


def test_a_causal_model_uses_the_words_on_one_side_of_the_mask_only():
  params, config = make_model(causal=True)
  words = fill_in(params, config, 'the cat [MASK] dog')
  assert fill_in(params, config, 'the cat [MASK] bird ran') == words
  assert fill_in(params, config, 'the dog [MASK] dog') != words
  # The word before the mask predicts it, so [MASK] itself is not looked at.
  expected = expect(params, config, [2, 5, 6], [2])[0]
  for word, probability in words[0]:
    wanted = expected[VOCAB.index(word)]
    np.testing.assert_allclose(probability, wanted, rtol=1e-4)
  params, config = make_model(causal=True, reverse=True)
  words = fill_in(params, config, 'the cat [MASK] dog')
  assert fill_in(params, config, 'the dog [MASK] dog') == words
  assert fill_in(params, config, 'the cat [MASK] cat') != words


@pytest.mark.parametrize(
  ('sentence', 'message'),
  [
    ('the [mask] ran', r'no \[MASK\].*in capitals'),
    ('[MASK] [MASK]' + ' the' * 6, 'has 10 tokens.*takes 9'),
  ],
)
def test_mistakes_are_explained(sentence, message):
  with pytest.raises(errors.UserError, match=message):
    fill_in(*make_certain_model(), sentence)
