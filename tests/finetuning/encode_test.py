"""Tests of encoding, against the library that transformers encodes with."""

import itertools
import random

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import encode
from tests import models
from tests.finetuning import made


def fast_tokenizer(tmp_path):
  """Returns the tokenizer of an export, as transformers loads it."""
  import tokenizers

  models.export_to(tmp_path / 'export')
  return tokenizers.Tokenizer.from_file(str(tmp_path / 'export/tokenizer.json'))


@pytest.mark.parametrize('length', [8, 9])
def test_pairs_of_all_lengths_are_truncated_as_by_tokenizers(tmp_path, length):
  fast = fast_tokenizer(tmp_path)
  fast.enable_truncation(length, strategy='longest_first')
  texts, pairs = zip(
    *itertools.product(*[[' '.join(['cat'] * n) for n in range(9)]] * 2),
    strict=True,
  )
  found = made.encode_rows(texts, pairs, length)
  rows = np.split(found.ids, found.ends[:-1])
  cut = 0
  for i, theirs in enumerate(fast.encode_batch(list(zip(texts, pairs)))):  # noqa: B905
    assert rows[i].tolist() == theirs.ids, (texts[i], pairs[i])
    assert found.firsts[i] == theirs.type_ids.count(0)
    cut += bool(theirs.overflowing)
  assert found.truncated == cut


def test_single_texts_and_special_tokens_in_them(tmp_path):
  fast = fast_tokenizer(tmp_path)
  fast.enable_truncation(6)
  drawn = random.Random(0)
  words = ['The', 'cats', 'dog', 'é', 'zebra', '[MASK]', '[SEP]', '[cls]', '.']
  texts = [
    ' '.join(drawn.choices(words, k=drawn.randrange(9))) for _ in range(60)
  ]
  found = made.encode_rows(texts, None, 6)
  rows = [row.tolist() for row in np.split(found.ids, found.ends[:-1])]
  assert rows == [x.ids for x in fast.encode_batch(texts)]


GPT = encode.extend(models.TOKENIZER)
# Of models.VOCAB: the 5, cat 6, dog 7, ##s 8; then the three new ones.
START, DELIMITER, EXTRACT = 11, 12, 13


def join_gpt(texts, pairs, length):
  rows = encode.encode_texts(encode.How(GPT, length, 'gpt'), texts, pairs)
  numbers = np.arange(len(texts))
  return rows.make_batch(numbers, int(rows.lengths.max()), 0)


def test_ids_of_a_text_and_of_a_pair():
  batch = join_gpt(['the cats', 'dog'], None, 8)
  assert batch['input_ids'].tolist() == [
    [START, 5, 6, 8, EXTRACT],
    [START, 7, EXTRACT, 0, 0],
  ]
  batch = join_gpt(['the cats', 'dog'], ['dog', 'the the'], 8)
  assert batch['input_ids'].tolist() == [
    [START, 5, 6, 8, DELIMITER, 7, EXTRACT],
    [START, 7, DELIMITER, 5, 5, EXTRACT, 0],
  ]
  assert batch['input_mask'].tolist() == [[1] * 7, [1] * 6 + [0]]
  assert not batch['segment_ids'].any()


def test_the_tokens_are_new():
  assert GPT.vocab[11:] == ('[START]', '[DELIMITER]', '[EXTRACT]')
  with pytest.raises(errors.UserError, match=r'has \[DELIMITER\] already'):
    encode.extend(GPT)
  # Nobody writes them in a text.
  assert max(encode.tokenize(GPT, ['a [EXTRACT] b'])[0]) < 11
