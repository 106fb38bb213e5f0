"""Tests of batches of rows of different lengths."""

import numpy as np

from bert_jax.inference import padding
from tests.finetuning import made


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
  batches = padding.batch_by_length(lengths, 4, step=4, most=18, tokens=12)
  found = [(x.tolist(), len(full), length) for x, full, length in batches]
  assert found == [
    ([1, 3, 5, 7], 4, 4),
    ([0, 4], 2, 8),
    ([6, 8], 2, 8),
    ([2], 1, 18),
  ]
