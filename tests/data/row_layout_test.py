"""Tests of packing pairs into rows."""

import itertools

import hypothesis
from hypothesis import strategies as st

from bert_jax.data import row_layout

ROOM = 20
LENGTHS = st.lists(st.integers(1, ROOM), max_size=60)
MOST = st.integers(1, 5)


def test_pairs_go_where_they_fit_best():
  # 9 leaves 3, 8 leaves 4, 7 leaves 5: 4 goes to the 8, 3 to the 9.
  assert row_layout.pack([3, 9, 4, 8, 7], room=12, most=8) == [
    [0, 1],
    [2, 3],
    [4],
  ]
  # 2 would fit beside 8 and 2.
  assert row_layout.pack([2, 8, 2], room=12, most=8) == [[0, 1, 2]]
  assert row_layout.pack([2, 8, 2], room=12, most=2) == [[0, 1], [2]]


@hypothesis.given(LENGTHS, MOST)
def test_every_pair_is_in_one_row_that_holds_it_in_order(lengths, most):
  packed = row_layout.pack(lengths, ROOM, most)
  assert sorted(i for row in packed for i in row) == list(range(len(lengths)))
  for row in packed:
    assert 1 <= len(row) <= most
    assert sum(lengths[i] for i in row) <= ROOM
  assert packed == sorted(sorted(row) for row in packed)


@hypothesis.given(LENGTHS)
def test_no_two_rows_could_be_one(lengths):
  packed = row_layout.pack(lengths, ROOM, most=60)
  sums = sorted(sum(lengths[i] for i in row) for row in packed)
  assert all(a + b > ROOM for a, b in itertools.pairwise(sums))
