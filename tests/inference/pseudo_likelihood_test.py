"""Pseudo-log-likelihoods of sentences."""

import math

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.inference import fill, pseudo_likelihood
from bert_jax.interop import rename
from bert_jax.tokenization.tokenizer import Tokenizer
from tests import models
from tests.inference import fill_test


def make_source(params, config, tokenizer):
  return rename.LoadedModel(params, config, tokenizer)


def certain():
  """A model that expects cat 1/2, dog 1/4, bird 1/8, ran 1/8 everywhere."""
  return make_source(*fill_test.make_certain_model(), fill_test.TOKENIZER)


def mixed(**changes):
  """A model whose expectations depend on all words."""
  params, config = fill_test.make_model(**changes)
  return make_source(params, config, fill_test.TOKENIZER)


def score(model, *texts):
  ids = model.tokenizer.ids(texts)
  words = [pseudo_likelihood.split_words(x, model.tokenizer) for x in ids]
  return pseudo_likelihood.score(model, ids, words)


def test_a_score_is_the_sum_over_the_pieces():
  found = score(certain(), 'cat', 'cat dog ran', '', 'bird bird')
  np.testing.assert_allclose(
    found, [-math.log(2), -math.log(2 * 4 * 8), 0, -math.log(64)], rtol=1e-6
  )


def test_later_pieces_of_a_word_are_masked_too():
  tokenizer = models.TOKENIZER  # cats is cat ##s
  model = make_source(models.make_params(), models.CONFIG, tokenizer)

  def guess(shown, mask, piece):
    found = fill.fill(model.params, model.config, tokenizer, shown, 11)
    return math.log(dict(found[mask])[piece])

  expected = [
    guess('[MASK] [MASK] dog', 0, 'cat'),
    guess('cat [MASK] dog', 0, '##s'),
    guess('cats [MASK]', 0, 'dog'),
  ]
  (found,) = score(model, 'cats dog')
  assert found == pytest.approx(sum(expected), rel=1e-5)
  ids = tokenizer.ids(['cats dog'])
  (part,) = pseudo_likelihood.score(model, ids, [[(0, 2)]])
  assert part == pytest.approx(sum(expected[:2]), rel=1e-5)


def test_neither_order_nor_batches_nor_padding_change_scores(monkeypatch):
  texts = ['the cat sat', 'cat', 'dog ran the the bird sat ran', 'the dog']
  together = score(mixed(), *texts)
  assert len(set(together.round(3))) == 4
  np.testing.assert_allclose(score(mixed(), *texts[::-1])[::-1], together, 1e-5)
  monkeypatch.setattr(pseudo_likelihood, '_TOKENS', 1)  # a row per batch
  np.testing.assert_allclose(score(mixed(), *texts), together, rtol=1e-5)


@pytest.mark.parametrize('reverse', [False, True])
def test_later_pieces_are_seen_by_a_model_from_the_right_alone(reverse):
  params, config = fill_test.make_model(causal=True, reverse=reverse)
  words = list(fill_test.VOCAB)
  words[6] = '##s'
  whole = make_source(params, config, Tokenizer(tuple(words), lowercase=True))
  alone = make_source(params, config, fill_test.TOKENIZER)
  ids = [np.array([2, 5, 6, 3])]  # a word of two pieces for the first only
  expected = pseudo_likelihood.score(alone, ids, [[(0, 1), (1, 2)]])
  found = pseudo_likelihood.score(whole, ids, [[(0, 2)]])
  np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize('reverse', [False, True])
def test_the_score_of_a_causal_model_is_the_likelihood(reverse):
  model = mixed(causal=True, reverse=reverse)
  places = [2, 3] if reverse else [0, 1]  # which predict the words
  # [CLS] the cat [SEP], of which a word is masked.
  first, second = (
    fill_test.expect(model.params, model.config, ids, [place])[0][word]
    for ids, place, word in zip(
      ([2, 4, 6, 3], [2, 5, 4, 3]), places, (5, 6), strict=True
    )
  )
  (found,) = score(model, 'the cat')
  assert found == pytest.approx(math.log(first) + math.log(second), rel=1e-5)


@pytest.mark.parametrize(
  'first, second, expected',
  [
    ('the cat', 'the dog', [[(1, 2)], [(1, 2)]]),
    ('the cats e', 'the dog e', [[(1, 3)], [(1, 2)]]),
    ('the cat', 'the cats', [[(1, 2)], [(1, 3)]]),
    ('the cat', 'THE cat', [[], []]),
    ('the cat', 'cat the', [[(0, 1), (1, 2)]] * 2),
    ('the cats', 'the', [[(0, 1), (1, 3)], [(0, 1)]]),
  ],
)
def test_words_that_differ_decide(first, second, expected):
  ids = models.TOKENIZER.ids([first, second])
  assert pseudo_likelihood.choose_words(*ids, models.TOKENIZER) == expected


def test_a_sentence_that_is_too_long_is_named():
  with pytest.raises(errors.UserError, match="'the the .*' has 10 .* takes 9;"):
    score(mixed(), 'cat', 'the ' * 8)
  assert score(mixed(), 'the ' * 7) < 0
