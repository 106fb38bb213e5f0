"""Tests of sentence pairs."""

import collections
import random

from bert_jax.data import pairs


def corpus(documents=40, sentences=30):
  """Token d * 1000 + s is the whole of sentence s of document d, ten times."""
  return [
    [[d * 1000 + s] * 10 for s in range(sentences)] for d in range(documents)
  ]


def all_pairs(documents, length=64, short=0.1, key='k'):
  return [
    (index, pair)
    for index in range(len(documents))
    for pair in pairs.pairs(
      documents,
      index,
      key=f'{key}/{index}',
      max_seq_length=length,
      short_seq_prob=short,
    )
  ]


def test_pairs_fit_and_are_never_empty():
  for _, pair in all_pairs(corpus()):
    assert pair.first and pair.second
    assert len(pair.first) + len(pair.second) <= 64 - 3


def test_true_second_follows_the_first():
  found = 0
  for index, pair in all_pairs(corpus(), short=0):
    if not pair.is_random:
      found += 1
      assert {t // 1000 for t in pair.first + pair.second} == {index}
      assert pair.second[0] - pair.first[-1] in (0, 1)
  assert found > 50


def test_random_second_comes_from_another_document():
  for index, pair in all_pairs(corpus()):
    if pair.is_random:
      assert {t // 1000 for t in pair.first} == {index}
      assert index not in {t // 1000 for t in pair.second}


def test_unused_sentences_are_put_back():
  # Sentences of 10 tokens fill a room of 70 exactly, so nothing is truncated,
  # and what a random second text displaced must begin the next pair.
  documents = corpus(20, 30)
  for index in range(20):
    seen = set()
    for pair in pairs.pairs(
      documents, index, key=f'{index}', max_seq_length=73, short_seq_prob=0
    ):
      seen |= set(pair.first)
      seen |= set() if pair.is_random else set(pair.second)
    assert seen == {s[0] for s in documents[index]}


def test_more_than_half_are_random_when_single_sentences_fill_a_pair():
  documents = [[[d] * 80 for _ in range(5)] for d in range(50)]
  assert all(pair.is_random for _, pair in all_pairs(documents, short=0))


def test_about_half_are_random_otherwise():
  documents = corpus(400)
  count = collections.Counter(p.is_random for _, p in all_pairs(documents))
  share = count[True] / sum(count.values())
  assert 0.45 < share < 0.60


def test_truncation_takes_from_both_ends():
  first, second = list(range(100)), list(range(100, 130))
  pairs._truncate(first, second, 60, random.Random(0))
  assert len(first) == 30 and len(second) == 30
  assert 0 < first[0] and first[-1] < 99
  assert first == list(range(first[0], first[-1] + 1))


def test_same_key_same_pairs():
  assert all_pairs(corpus()) == all_pairs(corpus())
  assert all_pairs(corpus()) != all_pairs(corpus(), key='other')
