import collections

import pytest

from bert_jax.data import vocab, vocab_pieces
from bert_jax.tokenization import tokenizer


def test_characters_are_counted_first_and_later_in_words_apart():
  # b begins 5 words, a 3; c begins none, but counts one as if it stood alone.
  assert list(
    vocab_pieces.count_characters([('b', 5), ('acc', 3)]).items()
  ) == [
    ('##c', 6),
    ('b', 6),
    ('a', 4),
    ('c', 1),
  ]


def test_learnt_pieces_are_long_and_marked_unless_they_begin_words():
  assert vocab_pieces.learn([('abab', 9)], 2) == ['##ab', 'ab']
  assert vocab_pieces.learn([('abab', 9)], 1) == ['##ab']
  assert vocab_pieces.learn([('\u2581', 9)], 2) == []


def test_the_pieces_that_save_most_are_kept_after_characters_by_count():
  counted = [('ab', 5), ('bbb', 2)]
  characters = {'a': 6, '##b': 9, 'b': 3}
  # 'ab' saves 5 x 1 tokens, 'bbb' 2 x 2; '##bb' is never used.
  learnt = ['##bb', 'bbb', 'ab']
  kept = ['a', '##b', 'b', 'ab', 'bbb']
  for room in (4, 5):
    assert vocab_pieces.choose(counted, characters, learnt, room) == kept[:room]


def test_a_piece_is_worth_the_tokens_that_losing_it_costs():
  counted = [('abab', 3), ('ab', 5), ('bbb', 2)]
  characters = {'a': 8, 'b': 2, '##b': 15, '##a': 3}
  tried = {*characters, 'ab', '##ab', '##ba', 'bbb'}
  assert vocab_pieces._worth(counted, tried, characters) == {
    'a': 800,  # each word that cannot be spelt costs 100
    'b': 200,
    '##b': 1500,
    '##a': 300,
    'ab': 8,  # in 3 + 5 words; a ##b in its place is one token more
    '##ab': 3,
    '##ba': 0,  # never the longest that fits
    'bbb': 4,  # in 2 words; b ##b ##b in its place is two tokens more
  }


def test_measures_agree_with_the_tokenizer(tmp_path):
  given = [*tokenizer.SPECIAL, 'the', 'c', '##a', '##t', '##at', '.']
  text = 'The cat. The catat, cx.'
  # the c ##at . the c ##at ##at [UNK] [UNK] .
  fit = vocab_pieces.measure(given, vocab.count_words([text], True))
  vocab.write(given, str(tmp_path / 'vocab.txt'))
  ids = tokenizer.Tokenizer.load(str(tmp_path / 'vocab.txt')).ids([text])[0]
  assert len(ids) == 11 and ids.count(1) == 2
  assert fit.tokens_per_word == pytest.approx(11 / 8)
  assert fit.unknown == pytest.approx(2 / 8)
  assert fit.whole == pytest.approx(4 / 8)  # the . the .
  # Of the 19 characters the six of 'the', x and the comma are no pieces.
  assert fit.characters == pytest.approx(11 / 19)
  assert vocab_pieces.measure(given, collections.Counter()) == (0, 0, 0, 0)
