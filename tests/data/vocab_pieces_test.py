import collections
import subprocess
import sys

import pytest

from bert_jax import errors
from bert_jax.data import vocab_pieces
from bert_jax.tokenization import tokenizer

_TEXT = ['The cat sat on the mat, the rat ran at the cat. '] * 20 + [
  'Every winter the weathered walls were whitewashed with water and lime.'
]


def _count(texts):
  return vocab_pieces.count_words(tokenizer.words(x, True) for x in texts)


_WORDS = _count(_TEXT)


def test_characters_come_first_by_count_where_they_stand():
  # 9 x 'ab': a begins 9 words and b ends 9; 5 x 'b': with the one for never
  # having stood alone, b begins 6; 'c' stands alone 3 + 1 times.
  words = vocab_pieces.train(collections.Counter({'ab': 9, 'b': 5, 'c': 3}), 10)
  assert words == [*tokenizer.SPECIAL, 'a', '##b', 'b', 'c', 'ab']


def test_another_process_gives_the_same_list():
  # Sets of strings have another order in each process.
  program = (
    'import collections\n'
    'from bert_jax.data import vocab_pieces\n'
    'words = collections.Counter(abc=2, acb=2, bac=2, bca=2, cab=2, cba=2)\n'
    'made = vocab_pieces.train(words, 5 + 6 + 4)\n'
  )
  here = {}
  exec(program, here)
  command = sys.executable, '-c', program + 'print(made)'
  there = subprocess.run(command, check=True, capture_output=True, text=True)
  assert there.stdout == f'{here["made"]}\n'


def test_pieces_that_only_led_to_longer_ones_are_dropped():
  # BPE makes 'water' of five characters by way of pieces that no word uses.
  words = vocab_pieces.train(collections.Counter(water=50, at=9, wet=1), 5 + 10)
  characters = {'w', '##a', '##t', '##e', '##r', 'a', 't', 'e', 'r'}
  assert set(words[5:]) == characters | {'water'}


def test_counting_and_merging_forget_the_rarest_words(monkeypatch):
  monkeypatch.setattr(vocab_pieces, '_MAX_WORDS', 2)
  texts = ['a a a a a b c c', 'd d e e e e e e e e e']
  assert _count(texts) == {'a': 5, 'e': 9}
  counters = [collections.Counter(a=3, b=1), collections.Counter(a=1, c=2)]
  assert vocab_pieces.count_words(iter(counters)) == {'a': 4, 'c': 2}


@pytest.mark.parametrize('text', [_TEXT, ['\u2581']])
def test_too_little_text_is_said_and_the_advised_size_works(text):
  words = _count(text)
  with pytest.raises(errors.UserError, match='the 5,000 of the v') as caught:
    vocab_pieces.train(words, 5000)
  most = int(str(caught.value).rstrip('.').split()[-1].replace(',', ''))
  assert len(set(vocab_pieces.train(words, most))) == most


def test_odd_words_do_no_harm():
  odd = ['\u2581', 'a\u2581b', '\u2581\u2581', 'x' * 300, 'half\ud800']
  words = vocab_pieces.train(_WORDS + collections.Counter(odd), 90)
  assert '' not in words and '##' not in words and '\ud800' not in words
  assert {'\u2581', '##\u2581'} <= set(words)
  assert not any('x' in word for word in words)
  '\n'.join(words).encode()


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
  fit = vocab_pieces.measure(given, _count([text]))
  tokenizer.write_vocab(given, str(tmp_path / 'vocab.txt'))
  ids = tokenizer.Tokenizer.load(str(tmp_path / 'vocab.txt')).ids([text])[0]
  assert len(ids) == 11 and ids.count(1) == 2
  assert fit.tokens_per_word == pytest.approx(11 / 8)
  assert fit.unknown == pytest.approx(2 / 8)
  assert fit.whole == pytest.approx(4 / 8)  # the . the .
  assert fit.unknown_tokens == pytest.approx(2 / 11)
  assert fit.unknown_characters == pytest.approx(3 / 19)  # cx ,
  assert not any(vocab_pieces.measure(given, collections.Counter()))


@pytest.mark.parametrize(
  'vocab, text, reason',
  [
    ('the cat', 'THE Cat the', 'another case .lowercase.: it lacks 4 letters'),
    ('deja', 'déjà', r'accents \(strip_accents\): it lacks 2 letters'),
    ('가나', '\u1100\u1161\u1102\u1161', 'accents .*HANGUL CHOSEONG'),
    ('the ##t', 't' * 201 + ' the', 'longer than 200 letters; give'),
    ('the cat', 'Кот и кошка the', 'script: it lacks 7 letters, .*CYRILLIC'),
  ],
)
def test_text_that_a_vocabulary_does_not_know_is_refused(vocab, text, reason):
  pieces = [*tokenizer.SPECIAL, *vocab.split()]
  words = collections.Counter(text.split())
  with pytest.raises(errors.UserError, match=reason):
    vocab_pieces.check(pieces, words)
  assert not vocab_pieces.check(pieces, collections.Counter(pieces)).unknown


_OF_ABC = [*tokenizer.SPECIAL, *'abcx', '##a', '##b', '##c', '##d', 'cab']


@pytest.mark.parametrize(
  'words, added',
  [
    # Each time, abc saves 2 pieces, cabs 1, and cab is one already.
    ({'abc': 3, 'cabc': 5, 'cab': 99}, ['abc', 'cabc']),
    # Of abcd, with abc, 1 of 3; abc begins both.
    ({'abcd': 5, 'abc': 5, 'xa': 5}, ['abc', 'abcd']),
    ({'abc': 2, 'ba': 4, 'ca': 3}, ['ba', 'ca']),  # abc is too rare
    ({'가': 4, 'bc': 3, 'a': 9}, ['가', 'bc']),  # unknown
    # abcx is known, as abc + x would not be.
    ({'abcx': 9, 'abc': 99, 'ba': 4, 'ca': 3}, ['abcx', 'ba']),
    ({'a' * 201: 99, 'ba': 4, 'ca': 3}, ['ba', 'ca']),  # always unknown
  ],
)
def test_words_are_added_that_save_the_most_pieces(words, added, capsys):
  known = [*_OF_ABC, '##cx']
  found = vocab_pieces.extend(known, collections.Counter(words), 2)
  assert found == [*known, *added]
  assert '2 words added' in capsys.readouterr().out


def test_what_added_words_save_is_said_and_more_than_there_are_is_refused(
  capsys,
):
  words = collections.Counter({'abc': 8, 'a': 12})  # 36 pieces, then 20
  assert vocab_pieces.extend(_OF_ABC, words, 1)[-1] == 'abc'
  assert capsys.readouterr().out == (
    '1 words added to the vocabulary, which save 800 of 1,800 pieces per 1,000 '
    'words: abc\n'
  )
  # Alone, abcd saves 15 and abc 10; but beside abc, abcd saves 5.
  both = collections.Counter(abcd=5, abc=5)
  assert vocab_pieces.extend(_OF_ABC, both, 1)[-1] == 'abc'
  message = 'data.add_words=2, but only 1 words .* give at most 1'
  with pytest.raises(errors.UserError, match=message):
    vocab_pieces.extend(_OF_ABC, words, 2)
