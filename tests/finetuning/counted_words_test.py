"""Tests of counting words, the baseline without a model."""

import numpy as np
import pytest

from bert_jax.finetuning import (
  classes,
  counted_words,
  encode,
  outcome,
  training,
)
from tests import models
from tests.finetuning import made

_ANIMALS = ('the cat', 'the dogs', 'cats', 'dog the the')
_PAIRS = ('cat', 'the cat'), ('dog', 'the cat'), ('dogs', 'dogs'), ('cats', '')
_NUMBERS = 3.0, 0.5, 5.0, 0.0


def make_data(pairs=False, train=40):
  """Returns classes of texts by animal, or how much two texts have in common."""
  texts, seconds, labels = _ANIMALS, None, np.array([0, 1, 0, 1], np.int32)
  if pairs:
    texts, seconds = zip(*_PAIRS, strict=True)
    labels = np.array(_NUMBERS, np.float32)
  rows = {
    name: encode.Rows(
      made.encode_rows(texts * n, seconds and seconds * n, 16),
      np.tile(labels, n),
    )
    for name, n in (('train', train // 4), ('dev', 2))
  }
  names = () if pairs else ('cat', 'dog')
  return training.Data(rows, names, models.TOKENIZER, {})


def test_words_and_their_pieces_tell_classes_apart():
  chosen, rows = counted_words.predict('accuracy', make_data())
  assert chosen.tolist() == [0, 1, 0, 1] * 2 and rows == 40


def test_what_a_pair_has_in_common_tells_numbers():
  data = make_data(pairs=True)
  found, _ = counted_words.predict('pearson', data)
  assert np.corrcoef(found, data.splits['dev'].labels)[0, 1] > 0.95
  counted_words._hash.cache_clear()
  again, _ = counted_words.predict('pearson', data)
  np.testing.assert_array_equal(found, again)  # bit for bit


@pytest.mark.parametrize('tokens, used', [(180, 40), (70, 14)])
def test_of_more_tokens_evenly_chosen_rows_are_used(monkeypatch, tokens, used):
  data = make_data()
  monkeypatch.setattr(counted_words, '_TOKENS', tokens)
  _, rows = counted_words.predict('accuracy', data)
  assert rows == used


def test_a_model_that_is_no_better_is_told():
  data = make_data()
  truth = data.splits['dev'].labels
  for chosen, problem in (
    (
      truth,
      'no better than counting words: accuracy 1.000, counting words 1.0',
    ),
    (1 - truth, 'no better than counting words: accuracy 0.000'),
  ):
    predicted = {'dev': {'chosen': chosen}}
    run = outcome.Run(classes.CLASSES, None, '', data, {}, predicted, None, 0)
    found = outcome._count_words(run, ('accuracy',))['counted_words']
    assert found['problem'].startswith(problem) and found['doubt'] == 1
    assert found['metrics'] == {'accuracy': 1} and found['rows'] == 40
