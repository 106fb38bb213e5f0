"""Tests of damaged files: found or harmless, never wrong tokens."""

import os

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import records
from tests.data.records_test import CLS, SEP, read, write


def spread(tmp_path, count=300, size=150):
  """Writes a file of several blocks of 64 KiB; returns it and its rows."""
  rng = np.random.default_rng(0)
  made = [
    [(rng.integers(5, 999, size).tolist(), [k % 1000], False)]
    for k in range(count)
  ]
  path = write(tmp_path, 'spread', 1000, made)
  rows = read([path], np.arange(count), size + 4, 1000)['input_ids']
  return path, rows


def outcome(path, good):
  """Returns how reading a damaged file ends: never with wrong tokens."""
  everything = np.arange(len(good))
  try:
    rows = read([path], everything, good.shape[1], 1000)['input_ids']
  except errors.UserError as error:
    assert path in str(error) and '\n' not in str(error)
    try:
      reader = records.Reader([path], 1000, [len(good)], skip_corrupt=True)
    except errors.UserError:
      return 'refused'
    batch = reader.rows(everything, good.shape[1], CLS, SEP)
    bad = batch['next_sentence_weights'] == 0
    assert reader.skipped == bad.sum() > 0
    assert (batch['input_ids'][~bad] == good[~bad]).all()
    assert (batch['input_mask'][bad] == 0).all()
    return 'named'
  assert (rows == good).all()
  return 'unharmed'


def test_a_flipped_byte_anywhere_is_found_or_harmless(tmp_path):
  path, good = spread(tmp_path)
  with open(path, 'rb') as file:
    whole = file.read()
  places = {*range(0, 400, 7), *range(0, len(whole), 1501)}
  places |= {b + k for b in range(0, len(whole), 1 << 16) for k in (0, 9, 17)}
  places |= {len(whole) - k for k in range(1, 200, 11)}
  found = []
  for place in sorted(places):
    damaged = bytearray(whole)
    damaged[place] ^= 1 << place % 8
    with open(path, 'r+b') as file:
      file.write(damaged)
    found.append(outcome(path, good))
  assert set(found) == {'named', 'refused', 'unharmed'}
  assert found.count('named') > len(found) / 2


def test_a_truncated_file_is_refused(tmp_path):
  path, good = spread(tmp_path)
  size = os.path.getsize(path)
  for left in (size - 1, size - (1 << 16), size // 2, 100, 1, 0):
    os.truncate(path, left)
    assert outcome(path, good) == 'refused'


def test_a_file_cut_short_while_it_is_open_is_an_error_at_its_records(tmp_path):
  path, good = spread(tmp_path)
  reader = records.Reader([path], 1000)
  os.truncate(path, os.path.getsize(path) // 3)
  with pytest.raises(errors.UserError, match='record 299 of .*/spread '):
    reader.rows(np.array([299]), good.shape[1], CLS, SEP)
