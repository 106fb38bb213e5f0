"""The command that trains a vocabulary."""

import os

from bert_jax.data import vocab
from bert_jax.tokenization import tokenizer
from tests.data.preparation import ONE, make_recipe

_TEXT = [
  'The cat sat on the mat, the rat ran at the cat.',
  'Every winter the weathered walls were whitewashed with water and lime.',
]


def test_it_is_the_vocabulary_that_prepare_trains(corpus, prepared, tmp_path):
  output = tmp_path / 'vocab.txt'
  vocab.make(make_recipe(corpus), str(output), ONE)
  with open(f'{prepared[0]}/vocab.txt') as file:
    assert output.read_text() == file.read()
  assert sorted(os.listdir(tmp_path)) == ['vocab.txt', 'vocab.txt.lock']


def test_it_measures_on_held_out_text(tmp_path, capfd):
  text = '\n\n'.join(f'{line}\n{k}' for k in range(100) for line in _TEXT)
  (tmp_path / 'a.txt').write_text(text, 'utf-8')
  output = str(tmp_path / 'vocab.txt')
  recipe = make_recipe(str(tmp_path / 'a.txt'), vocab_size=80)
  first, second = vocab.make(recipe, output, ONE).split('\n')
  assert len(tokenizer.read_vocab(output)) == 80
  assert first == (
    f'{output}: 80 pieces; accents are stripped: 0.0% of the characters are '
    'letters of scripts without case'
  )
  # Of 8 documents with 14 + 1 words and 12 with 12 + 1.
  assert second.startswith('held-out text of 276 words: 1.')
  assert 'per word, 0.0000% of the words unknown, ' in second
  assert not capfd.readouterr().err  # SentencePiece keeps quiet
