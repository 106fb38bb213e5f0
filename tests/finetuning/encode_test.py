"""Tests of encoding, against the library that transformers encodes with."""

import itertools
import random

import numpy as np
import pytest

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


def test_a_batch_has_the_chosen_rows_with_padding():
  found = made.encode_rows(['the cat', ''], ['dog', 'the cats'], 12)
  batch = found.make_batch(np.array([1, 0, 1]), 7, 0)
  # [PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s
  assert batch['input_ids'].tolist() == [
    [2, 3, 5, 6, 8, 3, 0],
    [2, 5, 6, 3, 7, 3, 0],
    [2, 3, 5, 6, 8, 3, 0],
  ]
  assert batch['segment_ids'][0].tolist() == [0, 0, 1, 1, 1, 1, 0]
  assert batch['input_mask'].sum(1).tolist() == [6, 6, 6]
  assert {x.dtype for x in batch.values()} == {np.dtype('int32')}


def test_long_rows_make_smaller_batches():
  lengths = np.array([6, 2, 20, 2, 6, 2, 6, 2, 6])
  batches = encode.batch_by_length(lengths, 4, step=4, most=18, tokens=12)
  found = [(x.tolist(), len(full), length) for x, full, length in batches]
  assert found == [
    ([1, 3, 5, 7], 4, 4),
    ([0, 4], 2, 8),
    ([6, 8], 2, 8),
    ([2], 1, 18),
  ]
