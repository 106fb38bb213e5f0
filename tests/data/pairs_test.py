"""Tests of sentence pairs."""

import collections
import itertools
import random
from typing import NamedTuple

import hypothesis
import numpy as np
from hypothesis import strategies as st

from bert_jax.data import hashing, pairs


class Pair(NamedTuple):
  """One of `pairs.Pairs`."""

  first: tuple[int, int]
  second: tuple[int, int]
  is_random: bool
  tokens: int


def texts(lengths, pools=None, weights=None):
  """Returns documents of sentences with the given numbers of tokens."""
  flat = [n for document in lengths for n in document]
  return pairs.Texts(
    np.array([0, *itertools.accumulate(flat)]),
    np.array([0, *itertools.accumulate(map(len, lengths))]),
    np.array(pools or [[0, len(lengths)]] * len(lengths)),
    np.cumsum([0, *(weights or [1] * len(lengths))]),
  )


def corpus(documents=40, sentences=30, tokens=10):
  return texts([[tokens] * sentences] * documents)


def made(found, index, keys, length, short):
  result = pairs.make_pairs(
    found,
    np.array(index),
    np.array(keys, np.uint64),
    max_seq_length=length,
    short_seq_prob=short,
  )
  rows = (result.spans.tolist(), result.is_random.tolist(), result.tokens)
  return [
    Pair(tuple(first), tuple(second), is_random, int(tokens))
    for (first, second), is_random, tokens in zip(*rows, strict=True)
  ]


def pairs_of(found, index, length=64, short=0.1, key=0):
  return made(found, [index], hashing.mix(key, index), length, short)


def all_pairs(found, **options):
  return [
    (index, pair)
    for index in range(len(found.documents) - 1)
    for pair in pairs_of(found, index, **options)
  ]


def bounds(found, index):
  """Returns the token offsets of a document."""
  first, last = found.documents[index : index + 2]
  return found.sentences[first], found.sentences[last]


def is_inside(text, limits):
  return limits[0] <= text[0] < text[1] <= limits[1]


def random_texts(seed):
  rng = random.Random(seed)
  return texts(
    [
      [rng.choice((1, 3, 10, 40, 200)) for _ in range(rng.randint(1, 12))]
      for _ in range(30)
    ]
  )


def test_pairs_fit_and_a_true_second_is_of_the_document_after_the_first():
  for seed in range(6):
    found = random_texts(seed)
    for index, pair in all_pairs(found):
      assert pair.second[0] < pair.second[1] and pair.tokens <= 64
      assert is_inside(pair.first, bounds(found, index))
      if not pair.is_random:
        assert is_inside(pair.second, bounds(found, index))
        assert pair.first[1] <= pair.second[0]


def test_random_seconds_come_from_the_pool_in_proportion_to_the_weights():
  # Documents 0 and 1 draw from each other, 2 to 5 from 2 to 5.
  pools = [[0, 2]] * 2 + [[2, 6]] * 4
  weights = [5, 3, 1, 1, 2, 4]
  found = texts([[10] * 2000] * 6, pools, weights)
  count = collections.Counter(
    (
      index,
      int(np.searchsorted(found.documents, pair.second[0] // 10, 'right')),
    )
    for index, pair in all_pairs(found)
    if pair.is_random
  )
  # The second number counts from 1.
  drawn = {(a, b - 1): n for (a, b), n in count.items()}
  assert {b for a, b in drawn if a == 0} == {1}
  assert {b for a, b in drawn if a == 1} == {0}
  assert {b for a, b in drawn if a == 2} == {3, 4, 5}
  total = sum(n for (a, _), n in drawn.items() if a == 2)
  for document, share in ((3, 1 / 7), (4, 2 / 7), (5, 4 / 7)):
    sigma = (share * (1 - share) / total) ** 0.5
    assert abs(drawn[2, document] / total - share) < 4 * sigma


def test_unused_sentences_are_put_back():
  # Sentences of 10 tokens fill a room of 70 exactly, so nothing is truncated,
  # and what a random second text displaced must begin the next pair.
  found = corpus(20, 30)
  for index in range(20):
    seen = set()
    for pair in pairs_of(found, index, length=73, short=0):
      seen |= set(range(*pair.first))
      seen |= set() if pair.is_random else set(range(*pair.second))
    assert seen == set(range(*bounds(found, index)))


def test_long_sentences_are_cut_before_words_and_all_tokens_are_used():
  # Room of 20 in a row: pieces of 4 tokens at least, and of 10 at most.
  found = texts([[20, 21, 5], [23]])
  begins = np.ones(69, bool)
  begins[24] = False  # the sentence of 21 begins at 20
  begins[47:59] = False  # that of 23 at 46
  cut = pairs.cut_sentences(found, begins, 20)
  assert cut.sentences.tolist() == [
    *(0, 20, 25, 29, 33, 37, 41),
    *(46, 50, 59, 63, 69),
  ]
  assert cut.documents.tolist() == [0, 7, 11]
  assert pairs.cut_sentences(found, begins, 23).sentences.tolist() == [
    *(0, 20, 41, 46, 69)
  ]
  one = texts([[2000]] * 20)
  whole = pairs.cut_sentences(one, np.ones(40_000, bool), 125)
  for found, least, most in (one, 0, 0.1), (whole, 0.99, 1):
    seen = {
      token
      for _, pair in all_pairs(found, length=128, short=0)
      for text in pair[:2]
      for token in range(*text)
    }
    assert least <= len(seen) / 40_000 <= most


def test_the_target_is_drawn_once_per_document():
  # Sentences of one token fill a target exactly; the last pair may not.
  found = corpus(200, 40, 1)
  targets = []
  for index in range(200):
    cut = pairs_of(found, index, length=23, short=1.0)[:-1]
    targets.append({p.tokens for p in cut if not p.is_random})
  assert max(map(len, targets)) == 1
  drawn = {n for target in targets for n in target}
  assert drawn == set(range(5, 24))  # 2 to 20, and three special tokens


def literal_truncation(a, b, room, rng):
  while len(a) + len(b) > room:
    longer = a if len(a) > len(b) else b
    del longer[0 if rng.random() < 0.5 else -1]
  return len(a), len(b)


def truncated(a, b, room, key=0):
  spans = np.array([[[0, a], [1000, 1000 + b]]])
  pairs._truncate(spans, room, hashing.mix(key))
  return [tuple(span) for span in spans[0].tolist()]


def test_truncation_leaves_what_token_by_token_removal_leaves():
  for a, b, room in itertools.product((1, 5, 20), (1, 6, 19), (2, 7, 8, 30)):
    expected = literal_truncation(
      list(range(a)), list(range(b)), room, random.Random(0)
    )
    (p, q), (r, s) = truncated(a, b, room)
    assert (q - p, s - r) == expected
    assert 0 <= p <= q <= a and 1000 <= r <= s <= 1000 + b


def test_documents_cut_together_or_alone_give_the_same_pairs():
  found = random_texts(3)
  index = list(range(30)) * 2
  keys = hashing.mix(np.repeat([7, 8], 30), np.array(index))
  alone = [
    pair
    for i, key in zip(index, keys, strict=True)
    for pair in made(found, [i], [key], 64, 0.1)
  ]
  assert made(found, index, keys, 64, 0.1) == alone


# Packing.

ROOM = 20
LENGTHS = st.lists(st.integers(1, ROOM), max_size=60)


def test_pairs_go_where_they_fit_best():
  # 9 leaves 3, 8 leaves 4, 7 leaves 5: 4 goes to the 8, 3 to the 9.
  assert pairs.pack([3, 9, 4, 8, 7], room=12, most=8) == [
    [0, 1],
    [2, 3],
    [4],
  ]
  # 2 would fit beside 8 and 2.
  assert pairs.pack([2, 8, 2], room=12, most=8) == [[0, 1, 2]]
  assert pairs.pack([2, 8, 2], room=12, most=2) == [[0, 1], [2]]


@hypothesis.given(LENGTHS, st.integers(1, 5))
def test_every_pair_is_in_one_row_that_holds_it_in_order(lengths, most):
  packed = pairs.pack(lengths, ROOM, most)
  assert sorted(i for row in packed for i in row) == list(range(len(lengths)))
  for row in packed:
    assert 1 <= len(row) <= most
    assert sum(lengths[i] for i in row) <= ROOM
  assert packed == sorted(sorted(row) for row in packed)


@hypothesis.given(LENGTHS)
def test_no_two_rows_could_be_one(lengths):
  packed = pairs.pack(lengths, ROOM, most=60)
  sums = sorted(sum(lengths[i] for i in row) for row in packed)
  assert all(a + b > ROOM for a, b in itertools.pairwise(sums))
