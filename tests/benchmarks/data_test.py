"""The pipeline that data.py compares with makes the pairs of Google's script."""

import random

import data

# Two documents whose sentences can be told apart: 10.. and 20.. of 3 tokens.
DOCUMENTS = [[[10 * k + i] * 3 for i in range(4)] for k in (1, 2)]


def test_a_true_second_text_follows_the_first_and_a_random_one_is_foreign():
  kinds, rng = set(), random.Random(0)
  for _ in range(200):
    tokens = 0
    for first, second, is_random in data.make_pairs(DOCUMENTS, 0, rng):
      kinds.add(is_random)
      assert {token // 10 for token in first} == {1}
      assert {token // 10 for token in second} == {2 if is_random else 1}
      if not is_random:
        assert second[0] == first[-1] + 1
      tokens += len(first) + (0 if is_random else len(second))
    assert tokens == 12  # what a random second text leaves over is used again
  assert kinds == {True, False}


def test_pairs_fit_and_lose_tokens_of_the_longer_text(monkeypatch):
  monkeypatch.setattr(data, 'LENGTH', 11)
  sizes, rng = [], random.Random(0)
  for _ in range(200):
    for first, second, _ in data.make_pairs(DOCUMENTS, 0, rng):
      sizes.append(len(first) + len(second))
      assert abs(len(first) - len(second)) <= 6
  assert max(sizes) == 8
