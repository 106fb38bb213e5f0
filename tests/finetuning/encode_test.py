"""Tests of encoding, against the library that transformers encodes with."""

import itertools
import random

import numpy as np
import pytest

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
