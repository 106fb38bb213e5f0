"""Tests of what is said about unknown words."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.tokenization import unknown
from bert_jax.tokenization.tokenizer import SPECIAL, Tokenizer

_CASED = Tokenizer((*SPECIAL, 'the', 'cat', '##s', 'x'), lowercase=False)


def examine(texts, words=_CASED):
  ids = np.array([i for x in texts for i in words.encode(x)['input_ids']])
  return unknown.examine(words, ids, texts, 'dev')


def test_special_tokens_do_not_count(capsys):
  assert examine(['the cats [MASK]'] * 9) == (0, '')
  assert examine([]) == (0, '')
  unknown.tell(_CASED, np.array([2, 5, 3]), ['the'], 'a.csv')
  assert capsys.readouterr().out == 'a.csv: 0.00% of the tokens are unknown\n'


@pytest.mark.parametrize(
  ('word', 'reason'),
  [
    ('The', r"another case .*: it lacks 1 letter, most often 'T' \(LATIN CAP"),
    (
      '영화',
      r"another script: it lacks 2 letters.*'영' \(HANGUL SYLLABLE YEONG",
    ),
    ('xcat', 'which has all letters, but'),
  ],
)
def test_the_likeliest_reason_is_named(word, reason):
  texts = ['the cat'] * 30
  share, warning = examine([*texts, *[word] * 2])
  assert share == 2 / 62
  assert warning.startswith('WARNING: dev: 3.2% of the tokens are unknown')
  with pytest.raises(errors.UserError, match=f'^dev: 40.0% .*{reason}.*; use'):
    examine([*texts, *[word] * 40])
  # Of few tokens, no share is too large.
  assert examine([word])[0] == 1


def test_blank_words_which_tags_have_are_not_unknown():
  words = ['the', ' ', 'cat', ''] * 30
  ids = np.array([5, 1, 6, 1] * 30)
  assert unknown.examine(_CASED, ids, words, 'dev') == (0, '')
