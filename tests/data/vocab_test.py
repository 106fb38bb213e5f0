import collections
import os
import subprocess
import sys

import pytest
from absl import flags

from bert_jax import errors
from bert_jax.data import accents, vocab
from bert_jax.tokenization import tokenizer
from tests import commands
from tests.data import preparation

_TEXT = ['The cat sat on the mat, the rat ran at the cat. '] * 20 + [
  'Every winter the weathered walls were whitewashed with water and lime.'
]
_WORDS = vocab.count_words(_TEXT, True)


def test_vocabulary_has_the_size_and_begins_with_special_tokens():
  words = vocab.train(_WORDS, 60)
  assert len(words) == len(set(words)) == 60
  assert words[:5] == ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
  assert {'the', 'cat'} <= set(words)


def test_characters_come_first_by_count_where_they_stand():
  # 9 x 'ab': a begins 9 words and b ends 9; 5 x 'b': with the one for never
  # having stood alone, b begins 6; 'c' stands alone 3 + 1 times.
  words = vocab.train(collections.Counter({'ab': 9, 'b': 5, 'c': 3}), 10)
  assert words[5:] == ['a', '##b', 'b', 'c', 'ab']


def test_any_order_of_words_gives_the_same_list():
  turned = collections.Counter(dict(reversed(_WORDS.items())))
  assert vocab.train(turned, 90) == vocab.train(_WORDS, 90)


def test_another_process_gives_the_same_list():
  # Sets of strings have another order in each process.
  program = (
    'import collections\n'
    'from bert_jax.data import vocab\n'
    'words = collections.Counter(abc=2, acb=2, bac=2, bca=2, cab=2, cba=2)\n'
    'print(vocab.train(words, 5 + 6 + 4))\n'
  )
  outs = {
    subprocess.run(
      [sys.executable, '-c', program],
      env={**os.environ, 'PYTHONHASHSEED': seed},
      check=True,
      capture_output=True,
    ).stdout
    for seed in '123'
  }
  assert len(outs) == 1


def test_cased_vocabulary_keeps_capitals_and_accents():
  text = ['Émile Émile Paris Paris'] * 9
  cased, uncased = (
    vocab.train(vocab.count_words(text, lowercase), 23)
    for lowercase in (False, True)
  )
  assert 'Paris' in cased and 'Émile' in cased
  assert 'paris' in uncased and 'emile' in uncased
  assert not any(c.isupper() for word in uncased[5:] for c in word)


def test_a_vocabulary_covers_the_text_it_was_trained_on(tmp_path):
  path = str(tmp_path / 'vocab.txt')
  vocab.write(vocab.train(_WORDS, 100), path)
  wordpiece = tokenizer.Tokenizer.load(path)
  assert all(wordpiece.unk_id not in ids for ids in wordpiece.ids(_TEXT))


def test_pieces_that_only_led_to_longer_ones_are_dropped():
  # BPE makes 'water' of five characters by way of pieces that no word uses.
  words = vocab.train(collections.Counter(water=50, at=9, wet=1), 5 + 10)
  characters = {'w', '##a', '##t', '##e', '##r', 'a', 't', 'e', 'r'}
  assert set(words[5:]) == characters | {'water'}


def test_rare_characters_give_way_where_there_is_no_room():
  # A word that cannot be spelt costs 100, 'the' would cost 400 x 2 to lose.
  words = collections.Counter({'the': 400, 'theé': 1})
  # t h e é, ##h ##e ##é are 7 forms; é, h and e never come first but count 1.
  kept = vocab.train(words, 5 + 4)
  assert kept[5:] == ['t', '##e', '##h', 'the']
  assert vocab.train(words, 5 + 8)[-1] == 'the'


def test_digits_and_letters_of_one_word_can_be_one_piece():
  words = collections.Counter({'10월': 50, '20일': 40})
  assert {'10월', '20일'} <= set(vocab.train(words, 20))


def test_words_are_counted_as_bert_splits_them():
  counts = vocab.count_words(["Don't. don't", 'A\x1cb 東京'], True)
  assert counts == {'don': 2, "'": 2, 't': 2, '.': 1, 'ab': 1, '東': 1, '京': 1}


def test_counting_and_merging_forget_the_rarest_words(monkeypatch):
  monkeypatch.setattr(vocab, '_MAX_WORDS', 2)
  texts = ['a a a a a b c c', 'd d e e e e e e e e e']
  assert vocab.count_words(texts, True) == {'a': 5, 'e': 9}
  counters = [collections.Counter(a=3, b=1), collections.Counter(a=1, c=2)]
  assert vocab.merge(iter(counters)) == {'a': 4, 'c': 2}


def test_merging_adds_and_leaves_the_parts_alone():
  parts = [collections.Counter(a=3, b=1), collections.Counter(a=1, c=2)]
  assert vocab.merge(parts) == {'a': 4, 'b': 1, 'c': 2}
  assert parts[0] == {'a': 3, 'b': 1}
  assert vocab.merge([]) == {}


def test_too_little_text_is_said_to_be_too_little():
  with pytest.raises(errors.UserError, match='the 500 of the vocab.*at most '):
    vocab.train(_WORDS, 500)
  with pytest.raises(errors.UserError, match='has 0 different words'):
    vocab.train(collections.Counter(), 500)
  with pytest.raises(errors.UserError, match='size=5 leaves no room'):
    vocab.train(_WORDS, 5)


@pytest.mark.parametrize('text', [_TEXT, ['hi there'], ['a'], ['\u2581']])
def test_the_advised_size_works(text):
  words = vocab.count_words(text, True)
  with pytest.raises(errors.UserError) as caught:
    vocab.train(words, 5000)
  most = int(str(caught.value).rstrip('.').split()[-1].replace(',', ''))
  assert len(set(vocab.train(words, most))) == most
  with pytest.raises(errors.UserError, match=f'at most {most}'):
    vocab.train(words, most + 1)


def test_every_size_up_to_the_largest_can_be_had():
  for size in range(6, 110):
    assert len(set(vocab.train(_WORDS, size))) == size


def test_odd_words_do_no_harm():
  odd = ['\u2581', 'a\u2581b', '\u2581\u2581', 'x' * 300, 'half\ud800']
  words = vocab.train(_WORDS + collections.Counter(odd), 90)
  assert '' not in words and '##' not in words and '\ud800' not in words
  assert {'\u2581', '##\u2581'} <= set(words)
  assert not any('x' in word for word in words)
  '\n'.join(words).encode()


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
  output, other = str(tmp_path / 'vocab.txt'), str(tmp_path / 'other.txt')
  vocab.write([*tokenizer.SPECIAL, 'the'], other)
  recipe = preparation.make_recipe(
    str(tmp_path / 'a.txt'), layout='paragraphs', vocab_size=60
  )
  print(vocab.make(recipe, output, [other]))
  assert len(tokenizer.read_vocab(output)) == 60
  out, err = capfd.readouterr()
  lines = out.splitlines()
  assert lines[0] == (
    f'{output}: 60 pieces; accents are stripped: 0.0% of the characters are '
    'letters of scripts without case'
  )
  assert lines[1] == 'held-out text of 28 words'  # 2 of 210 lines
  assert lines[3].split()[1:] == ['0.0000%', '100.00%', '100.0000%', output]
  # 'the' is 4 words of each 14; the rest is unknown.
  assert lines[4].split()[1:3] == ['71.4286%', '28.57%']
  assert not err  # SentencePiece keeps quiet


def test_importing_defines_no_flags():
  assert 'cased' not in flags.FLAGS


def test_accents_are_kept_where_the_script_needs_them(tmp_path, monkeypatch):
  english, korean = tmp_path / 'a.txt', tmp_path / 'b.txt'
  english.write_text('Café au lait.\n' * 30, encoding='utf-8')
  korean.write_text('한국어 문장.\n' * 30, encoding='utf-8')
  output = str(tmp_path / 'vocab.txt')

  def pieces(*inputs, strip=None):
    recipe = preparation.make_recipe(
      '',
      inputs=map(str, inputs),
      layout='paragraphs',
      vocab_size=24,
      strip_accents=strip,
    )
    report = vocab.make(recipe, output)
    return tokenizer.read_vocab(output), report

  found, report = pieces(english)
  assert 'é' not in ''.join(found) and 'accents are stripped' in report
  found, report = pieces(english, korean)
  assert {'##é', '한'} <= {*found} and 'accents are kept: 25' in report
  # It stops reading as soon as the script shows, and begins again.
  monkeypatch.setattr(accents, 'SAMPLE', 400)
  assert pieces(english, korean)[0] == found
  found, report = pieces(english, korean, strip=True)
  assert '\u1112' in found and 'stripped: as was asked' in report


def test_the_command_reads_what_prepare_reads(tmp_path, capfd):
  path, output = tmp_path / 'a.jsonl', tmp_path / 'vocab.txt'
  path.write_text('{"content": "Der Café ist zu. Na, so was."}\n' * 9)
  given = [f'--input={path}', f'--output={output}', '--size=21']
  asked = ('--field=content', '--language=ko')
  commands.run(vocab, *given, *asked)
  # By the text alone they would be stripped.
  assert 'accents are kept: in language ko marks' in capfd.readouterr().out
  with pytest.raises(errors.UserError, match="a string 'text'"):
    commands.run(vocab, *given)
  with pytest.raises(
    errors.UserError, match="--language='korean' is not a code"
  ):
    commands.run(vocab, *given, '--language=korean')
