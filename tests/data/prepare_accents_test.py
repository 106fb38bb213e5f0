"""Whether preparation strips accents, and how the data says so."""

import dataclasses
import os
import random

import pytest

from bert_jax import errors
from bert_jax.data import manifest_file, prepare
from bert_jax.tokenization import tokenizer
from tests.data.preparation import ONE, make_recipe


def _write_korean(path):
  rng = random.Random(3)
  words = '한국어 문장을 나누고 합치는 방법 있다 없다 그리고 나라 말이'.split()
  blocks = [
    '\n'.join(' '.join(rng.choices(words, k=6)) + '.' for _ in range(5))
    for _ in range(60)
  ]
  path.write_text('\n\n'.join(blocks), encoding='utf-8')
  return str(path)


def test_korean_stays_in_syllables_and_the_data_says_so(tmp_path):
  path = _write_korean(tmp_path / 'ko.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, vocab_size=60)
  made = prepare.prepare(recipe, output, ONE)
  assert made['recipe']['strip_accents'] is False
  assert made['accents'].startswith('kept: 7')
  words = manifest_file.load_tokenizer(output)
  assert words.tokens(words.ids(['한국어 나라'])[0]) == ['한국어', '나라']
  with open(os.path.join(output, 'DATA_CARD.md'), encoding='utf-8') as file:
    card = file.read()
  assert '나라' in card and 'accents are kept: 7' in card
  # Decided once: the same request finds it, another one does not get it.
  assert prepare.prepare(recipe, output, ONE) == made
  kept = dataclasses.replace(recipe, strip_accents=False)
  assert prepare.prepare(kept, output, ONE) == made
  with pytest.raises(errors.UserError, match='strip_accents was False'):
    prepare.prepare(
      dataclasses.replace(recipe, strip_accents=True), output, ONE
    )


def test_google_splits_korean_into_jamo(tmp_path):
  path = _write_korean(tmp_path / 'ko.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, vocab_size=60, strip_accents=True)
  made = prepare.prepare(recipe, output, ONE)
  assert made['accents'] == 'stripped: as was asked'
  pieces = manifest_file.load_tokenizer(output).vocab
  assert '\u1112' in pieces and '한' not in pieces


def test_a_vocabulary_that_is_given_decides_over_the_text(tmp_path):
  path = _write_korean(tmp_path / 'ko.txt')
  vocab = tmp_path / 'vocab.txt'
  pieces = [*tokenizer.SPECIAL, *'\u1112\u1161.']
  vocab.write_text('\n'.join(pieces) + '\n', encoding='utf-8')
  recipe = make_recipe(path, vocab=str(vocab), vocab_size=8)
  output = str(tmp_path / 'data')
  made = prepare.prepare(recipe, output, ONE)
  assert made['recipe']['strip_accents'] is True
  assert made['accents'] == (
    'stripped: 0.0% of the pieces of the vocabulary have any'
  )
