"""Tests of predicted rows: what is written is what is read."""

import csv
import os

import numpy as np
import pytest

from bert_jax.finetuning import classes, encode, tables
from bert_jax.finetuning.readers import table_files
from bert_jax.inference import padding
from tests import peak


def read(path) -> list[dict]:
  return [row for _, row in table_files.read(str(path)).rows]


def make_encoded(rows):
  ends = np.arange(1, rows + 1)
  return padding.Encoded(np.zeros(rows), ends, np.ones(rows, int))


def test_the_probability_of_one_of_many_classes_is_kept(tmp_path):
  labels = tuple(f'say "{i}"' for i in range(3))
  split = encode.Rows(make_encoded(2), np.array([1, 0]), ids=['7', '3'])
  kept = {'chosen': np.array([2, 0]), 'probability': np.array([4.2e-5, 1])}
  classes.CLASSES.write_split(str(tmp_path), 'dev', labels, split, kept)
  row, other = read(tmp_path / 'dev.tsv')
  assert list(row.values()) == ['7', 'say "1"', 'say "2"', '4.2e-05']
  assert list(other.values()) == ['3', 'say "0"', 'say "0"', '1.0']
  assert list(row) == ['id', 'label', 'prediction', 'probability']


def test_predictions_for_a_file_have_no_quotes(tmp_path):
  path = str(tmp_path / 'out.tsv')
  rows = [{'prediction': 'say "hi"', 'probability': 3.2e-5}]
  tables.write(path, iter(rows))
  assert read(path) == [{'prediction': 'say "hi"', 'probability': '3.2e-05'}]
  with pytest.raises(csv.Error):
    tables.write(f'{path}.tsv', iter([{'prediction': 'a\tb'}]))
  assert not os.path.exists(f'{path}.tsv')


@pytest.mark.parametrize(
  ('kind', 'found'),
  [('csv', 'bad \\ud83d'), ('tsv', 'bad \\ud83d'), ('jsonl', 'bad \ud83d')],
)
def test_half_an_emoji_which_utf8_lacks_is_escaped(tmp_path, kind, found):
  path, rows = tmp_path / f'out.{kind}', [{'prediction': '0', 'p': 0.5}]
  kept = [{'text': 'bad \ud83d'}]  # as JSON may have it
  tables.write(str(path), iter(rows), iter(kept))
  assert read(path)[0]['text'] == found


@pytest.mark.parametrize('kind', ['csv', 'tsv', 'jsonl'])
def test_rows_are_written_one_at_a_time(tmp_path, kind):
  path = str(tmp_path / f'out.{kind}')
  rows = ({'prediction': f'class {i}', 'probability': 0.5} for i in range(9999))
  assert peak.measure(lambda: tables.write(path, rows)) < 0.5e6
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()
  assert len(lines) == 9999 + (kind != 'jsonl') and 'class 9998' in lines[-1]
