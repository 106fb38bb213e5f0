"""The judge of the data engine is itself judged by hand."""

import random

import google_procedure
import numpy as np
import pytest

VOCAB = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'one', 'two', 'three']
INDEX = {word: i for i, word in enumerate(VOCAB)}
# Two documents whose sentences can be told apart: a.. and b.. of 3 tokens.
DOCUMENTS = [
  [[f'{letter}{sentence}'] * 3 for sentence in range(4)] for letter in 'ab'
]


def found_pairs(index, length):
  rng = random.Random(0)
  return [
    pair
    for _ in range(200)
    for pair in google_procedure.pairs(DOCUMENTS, index, length, rng)
  ]


def test_a_true_second_text_follows_the_first_and_a_random_one_is_foreign():
  kinds = set()
  for first, second, is_random in found_pairs(0, 60):
    kinds.add(is_random)
    assert {token[0] for token in first} == {'a'}
    assert {token[0] for token in second} == {'b' if is_random else 'a'}
    if not is_random:
      assert int(second[0][1]) == int(first[-1][1]) + 1
  assert kinds == {True, False}


def test_sentences_left_over_by_a_random_second_text_are_used_again():
  rng = random.Random(0)
  for _ in range(200):
    firsts = seconds = 0
    for first, second, is_random in google_procedure.pairs(
      DOCUMENTS, 0, 60, rng
    ):
      firsts += len(first)
      seconds += 0 if is_random else len(second)
    assert firsts + seconds == 12


def test_pairs_fit_and_lose_tokens_of_the_longer_text():
  full = 0
  for first, second, _ in found_pairs(0, 11):
    assert len(first) + len(second) <= 8
    full += len(first) + len(second) == 8
  assert full > 100
  first, second = ['a'] * 9, ['b'] * 3
  google_procedure._truncate(first, second, 8, random.Random(0))
  assert (len(first), len(second)) == (5, 3)


def test_masked_rows_give_back_the_pair_and_hide_three_of_twenty_tokens():
  long = [[['one', 'two', 'three', 'one']] * 20, [['two'] * 17] * 20]
  examples = google_procedure.make_examples(
    long, VOCAB, seed=0, max_seq_length=20, max_predictions=5, passes=2
  )
  dtype = google_procedure.features_type(20, 5)
  rows = google_procedure.to_features(examples, INDEX, dtype)
  for row in rows:
    n = row['input_mask'].sum()
    p = int(row['masked_lm_weights'].sum())
    assert p == max(1, round(0.15 * int(n)))
    ids = row['input_ids'].copy()
    ids[row['masked_lm_positions'][:p]] = row['masked_lm_ids'][:p]
    assert ids[0] == INDEX['[CLS]'] and not ids[n:].any()
    ends = np.flatnonzero(ids == INDEX['[SEP]'])
    assert ends.tolist() == [np.argmax(row['segment_ids']) - 1, n - 1]


def test_statistics_of_two_rows_checked_by_hand():
  rows = np.zeros(2, google_procedure.features_type(16, 2))
  # [CLS] x [SEP] y z [SEP], the y hidden, the z kept; a random second text.
  rows['input_ids'][0, :6] = 2, 5, 3, 4, 6, 3
  rows['input_mask'][0, :6] = 1
  rows['segment_ids'][0, 3:6] = 1
  rows['masked_lm_positions'][0] = 3, 4
  rows['masked_lm_ids'][0] = 5, 6
  rows['masked_lm_weights'][0] = 1
  rows['next_sentence_labels'][0] = 1
  # [CLS] x x x [SEP] y [SEP], the y another word; the true second text.
  rows['input_ids'][1, :7] = 2, 5, 5, 5, 3, 7, 3
  rows['input_mask'][1, :7] = 1
  rows['segment_ids'][1, 5:7] = 1
  rows['masked_lm_positions'][1, 0] = 5
  rows['masked_lm_ids'][1, 0] = 6
  rows['masked_lm_weights'][1, 0] = 1
  found = google_procedure.statistics(rows, 1, mask_id=4, mark_id=6)
  expected = {
    'pairs per document': 2,
    'random second texts': 0.5,
    'random ones of other text': 1,  # its z is marked
    'tokens per pair': 6.5,
    'tokens per random pair': 6,
    'padding share': 1 - 6.5 / 16,
    'predictions per row': 1.5,
    'masked share of tokens': 3 / 13,
    'predictions: [MASK]': 1 / 3,
    'predictions: random word': 1 / 3,
    'predictions: unchanged': 1 / 3,
    'first text of both, mean': (1 / 3 + 3 / 4) / 2,
    'first text up to 25%': 0,
    'first text up to 50%': 0.5,
    'first text up to 75%': 1,
    '1 to 16 tokens': 1,
  }
  assert found == pytest.approx(expected)
