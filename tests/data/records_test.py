"""Tests of records."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import pairs, records

PAIRS = [
  pairs.Pair([7, 8], [9], False),
  pairs.Pair([10], [11, 12, 13], True),
  pairs.Pair([5], [6], False),
]


def write(tmp_path, name='a', vocab_size=20, made=PAIRS):
  path = str(tmp_path / name)
  ids = records.id_type(vocab_size)
  assert records.write(path, [records.encode(p, ids) for p in made]) == len(
    made
  )
  return path


def test_rows_by_hand(tmp_path):
  reader = records.Reader([write(tmp_path)], 20)
  rows = reader.rows(np.array([1, 0]), 8, cls_id=2, sep_id=3)
  assert rows['input_ids'].tolist() == [
    [2, 10, 3, 11, 12, 13, 3, 0],
    [2, 7, 8, 3, 9, 3, 0, 0],
  ]
  assert rows['input_mask'].tolist() == [
    [1, 1, 1, 1, 1, 1, 1, 0],
    [1, 1, 1, 1, 1, 1, 0, 0],
  ]
  assert rows['segment_ids'].tolist() == [
    [0, 0, 0, 1, 1, 1, 1, 0],
    [0, 0, 0, 0, 1, 1, 0, 0],
  ]
  assert rows['next_sentence_labels'].tolist() == [1, 0]


def test_files_are_numbered_through(tmp_path):
  paths = [write(tmp_path, 'a'), write(tmp_path, 'b', made=PAIRS[:1])]
  reader = records.Reader(paths, 20)
  assert len(reader) == 4
  assert reader.rows(np.array([3]), 6, 2, 3)['input_ids'].tolist() == [
    [2, 7, 8, 3, 9, 3]
  ]


def test_large_vocabularies(tmp_path):
  big = [pairs.Pair([119_546], [70_000], True)]
  path = write(tmp_path, vocab_size=119_547, made=big)
  rows = records.Reader([path], 119_547).rows(np.array([0]), 5, 2, 3)
  assert rows['input_ids'].tolist() == [[2, 119_546, 3, 70_000, 3]]


def test_an_id_outside_the_vocabulary_is_refused(tmp_path):
  reader = records.Reader([write(tmp_path)], vocab_size=13)
  reader.rows(np.array([0]), 8, 2, 3)
  with pytest.raises(errors.UserError, match='token id 13.*has 13 entries'):
    reader.rows(np.array([1]), 8, 2, 3)


def test_a_record_that_is_too_long_is_named(tmp_path):
  reader = records.Reader([write(tmp_path)], 20)
  with pytest.raises(errors.UserError, match='record 1 .*longer than 6'):
    reader.rows(np.array([0, 1]), 6, 2, 3)


def test_a_damaged_file_is_refused(tmp_path):
  path = write(tmp_path)
  with open(path, 'r+b') as file:
    file.truncate(100)
  with pytest.raises(errors.UserError, match='cannot read the records'):
    records.Reader([path], 20)
