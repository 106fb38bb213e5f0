import collections

import pytest
from absl import flags

from bert_jax import errors, tokenizer
from bert_jax.data import vocab

_TEXT = ['The cat sat on the mat, the rat ran at the cat. '] * 20 + [
  'Every winter the weathered walls were whitewashed with water and lime.'
]


def test_vocabulary_has_the_size_and_begins_with_special_tokens():
  words = vocab.train(_TEXT, 60, True)
  assert len(words) == len(set(words)) == 60
  assert words[:5] == ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
  assert {'the', 'cat'} <= set(words)


def test_common_characters_come_first_and_later_in_words():
  words = vocab.train(_TEXT, 100, True)
  assert words[5:9] == ['t', '##t', 'a', '##a']
  assert '.' in words and '##.' not in words  # punctuation stands alone


def test_training_twice_gives_the_same_list():
  assert vocab.train(_TEXT, 90, True) == vocab.train(iter(_TEXT), 90, True)


def test_cased_vocabulary_keeps_capitals_and_accents():
  text = ['Émile Émile Paris Paris'] * 9
  cased, uncased = vocab.train(text, 30, False), vocab.train(text, 30, True)
  assert 'Paris' in cased and 'Émile' in cased
  assert 'paris' in uncased and 'emile' in uncased
  assert not any(c.isupper() for word in uncased[5:] for c in word)


def test_a_vocabulary_covers_the_text_it_was_trained_on(tmp_path):
  path = str(tmp_path / 'vocab.txt')
  vocab.write(vocab.train(_TEXT, 100, True), path)
  wordpiece = tokenizer.Tokenizer.load(path)
  assert all(wordpiece.unk_id not in ids for ids in wordpiece.ids(_TEXT))


def test_words_are_counted_as_bert_splits_them():
  counts = vocab.count_words(["Don't. don't", 'A\x1cb 東京'], True)
  assert counts == {'don': 2, "'": 2, 't': 2, '.': 1, 'ab': 1, '東': 1, '京': 1}


def test_emptying_the_counters_changes_no_counts(monkeypatch):
  whole = vocab.count_words(_TEXT, True)
  monkeypatch.setattr(vocab, '_MAX_CHUNKS', 3)
  assert vocab.count_words(_TEXT, True) == whole


def test_pruning_forgets_the_rarest_words(monkeypatch):
  monkeypatch.setattr(vocab, '_MAX_WORDS', 2)
  words = collections.Counter(a=5, b=1, c=2, d=2, e=9)
  vocab._prune(words)
  assert words == {'a': 5, 'e': 9}


def test_too_little_text_is_said_to_be_too_little():
  with pytest.raises(errors.UserError, match='the 500 of the vocab.*at most '):
    vocab.train(_TEXT, 500, True)
  with pytest.raises(errors.UserError, match='has 0 different words'):
    vocab.train([], 500, True)


@pytest.mark.parametrize('text', [_TEXT, ['hi there']])
def test_the_advised_size_works(text):
  with pytest.raises(errors.UserError) as caught:
    vocab.train(text, 5000, True)
  most = int(str(caught.value).rstrip('.').split()[-1].replace(',', ''))
  words = vocab.train(text, most, True)
  assert len(words) == most
  assert '##.' not in words and '##,' not in words  # no useless pieces


def test_the_word_mark_of_sentencepiece_in_text_does_no_harm():
  words = vocab.train([*_TEXT, '\u2581 a\u2581b \u2581\u2581'], 90, True)
  assert '' not in words and '##' not in words


def test_a_vocabulary_is_written_whole_or_not_at_all(tmp_path):
  path = str(tmp_path / 'new' / 'vocab.txt')
  vocab.write([*tokenizer.SPECIAL, 'é'], path)
  assert list(tokenizer.read_vocab(path)) == [*tokenizer.SPECIAL, 'é']
  with pytest.raises(UnicodeEncodeError):
    vocab.write(['\ud800'], path)
  assert list(tokenizer.read_vocab(path)) == [*tokenizer.SPECIAL, 'é']
  with pytest.raises(errors.UserError, match='cannot be written'):
    vocab.write(['a'], '/dev/null/vocab.txt')


def test_the_command_measures_on_held_out_text(tmp_path, capfd):
  (tmp_path / 'a.txt').write_text('\n'.join(_TEXT * 10), 'utf-8')
  output = str(tmp_path / 'vocab.txt')
  inputs = [str(tmp_path / 'a.txt')]
  print(vocab.make(inputs, 'paragraphs', 60, True, output))
  assert len(tokenizer.read_vocab(output)) == 60
  out, err = capfd.readouterr()
  assert '60 pieces' in out and 'tokens per word, 0.000% unknown' in out
  assert not err  # SentencePiece keeps quiet


def test_importing_defines_no_flags():
  assert 'cased' not in flags.FLAGS
