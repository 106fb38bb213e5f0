"""Tests of predicted rows: what is written is what is read."""

import os

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import (
  choices,
  classes,
  encode,
  predictions,
  row_task,
)
from bert_jax.finetuning.readers import table_files


def read(path) -> list[dict]:
  return [row for _, row in table_files.read(str(path)).rows]


def make_encoded(rows):
  return encode.Encoded(
    np.zeros(rows), np.arange(1, rows + 1), np.ones(rows, int), 0
  )


def test_small_and_large_numbers_are_read_as_they_were_predicted(tmp_path):
  found = np.array([3.2e-5, 123456.78, -1e-9], np.float32)
  split = classes.TextRows(make_encoded(3), None, ['0', '1', '2'])
  classes.TASK.write_split(str(tmp_path), 'dev', (), split, {'chosen': found})
  rows = read(tmp_path / 'dev.tsv')
  values = np.array([row['prediction'] for row in rows], np.float32)
  np.testing.assert_allclose(values, found, rtol=1e-7)


def test_the_probability_of_one_of_many_classes_is_kept(tmp_path):
  labels = tuple(f'say "{i}"' for i in range(3))
  split = classes.TextRows(make_encoded(1), np.array([1]), ['7'])
  kept = {'chosen': np.array([2]), 'probability': np.array([4.2e-5])}
  classes.TASK.write_split(str(tmp_path), 'dev', labels, split, kept)
  assert read(tmp_path / 'dev.tsv') == [
    {
      'id': '7',
      'label': 'say "1"',
      'prediction': 'say "2"',
      'probability': '4.2e-05',
    }
  ]


def test_choices_have_their_probability(tmp_path):
  split = choices.ChoiceRows(make_encoded(2), None, 2)
  logits = {'logits': np.array([[0, np.log(9999)]], np.float32)}
  kept = predictions.keep_likeliest(split, None, np.arange(1), logits)
  choices.TASK.write_split(str(tmp_path), 'dev', (), split, kept)
  [row] = read(tmp_path / 'dev.tsv')
  assert (row['id'], row['prediction']) == ('0', '1')
  assert float(row['probability']) == pytest.approx(0.9999, abs=1e-6)


def test_predictions_for_a_file_have_no_quotes(tmp_path):
  path = str(tmp_path / 'out.tsv')
  rows = [{'prediction': 'say "hi"', 'probability': 3.2e-5}]
  row_task.write(path, iter(rows))
  assert read(path) == [{'prediction': 'say "hi"', 'probability': '3.2e-05'}]


def test_a_text_that_would_break_a_row_is_refused(tmp_path):
  path = str(tmp_path / 'out.tsv')
  with pytest.raises(errors.UserError, match='has no quotes for tabs'):
    row_task.write(path, iter([{'prediction': 'a\tb'}]))
  assert not os.path.exists(path)
  assert [table_files.fits_tsv(x) for x in ('a b', 'a\tb', 'a\nb', 'a\rb')] == [
    True, False, False, False
  ]  # fmt: skip
