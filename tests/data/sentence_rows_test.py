"""Tests of rows of consecutive sentences."""

import collections
import itertools

import hypothesis
import numpy as np
from hypothesis import strategies as st

from bert_jax.data import hashing, sentence_rows
from tests.data.pairs_test import texts

ROOM = 20  # for text in a row of one part
DOCUMENTS = st.lists(
  st.lists(st.integers(1, ROOM), min_size=1, max_size=9), min_size=1, max_size=9
)


def make(found, length, is_mixed=True, passes=1, at_once=1, shuffled=False):
  """Returns rows, lists of (begin, end) of parts, of some passes at once."""
  count = len(found.documents) - 1

  def chunks():
    for first in range(0, passes, at_once):
      numbers = np.arange(first, min(first + at_once, passes)).repeat(count)
      documents = np.tile(np.arange(count), len(numbers) // count)
      keys = hashing.mix(numbers, documents) if shuffled else documents
      yield documents, numbers, keys

  rows = []
  for spans, is_random, counts in sentence_rows.make_rows(
    found, chunks(), length, is_mixed
  ):
    assert len(is_random) == len(spans) and not is_random.any()
    parts = iter(map(tuple, spans[:, 0].tolist()))
    rows += [list(itertools.islice(parts, n)) for n in counts]
  return rows


def test_rows_of_a_few_documents_by_hand():
  # Documents of 30, 12, 24 and 1 tokens; each part has two special ones.
  found = texts([[10, 10, 10], [12], [12, 8, 4], [1]])
  first = [[(0, 20)], [(20, 30), (30, 42)], [(42, 66)], [(66, 67)]]
  assert make(found, 26) == first
  # The second row has 14 + 14 of 32 tokens; a sentence of 8 is too much.
  mixed = [[(0, 30)], [(30, 42), (42, 54)], [(54, 66), (66, 67)]]
  assert make(found, 32) == mixed
  single = [[(0, 30)], [(30, 42)], [(42, 66)], [(66, 67)]]
  assert make(found, 32, is_mixed=False) == single


def test_a_document_is_cut_so_that_no_part_has_fewer_than_8_tokens():
  # 4 tokens would fit into the first row of 24.
  assert make(texts([[10], [4, 12]]), 24) == [[(0, 10)], [(10, 26)]]
  # 19 tokens would fit, but leave 3.
  assert make(texts([[10, 9, 3]]), 22) == [[(0, 10)], [(10, 22)]]
  # There is no other place.
  assert make(texts([[3, 20]]), 22) == [[(0, 3)], [(3, 23)]]


@hypothesis.given(DOCUMENTS, st.integers(ROOM + 2, 90), st.booleans())
def test_every_token_is_in_one_part_in_order(lengths, length, is_mixed):
  found = texts(lengths)
  rows = make(found, length, is_mixed)
  parts = [part for row in rows for part in row]
  ends = [end for _, end in parts]
  assert [begin for begin, _ in parts] == [0, *ends[:-1]]
  assert ends[-1] == found.sentences[-1]
  assert {*ends} <= {*found.sentences.tolist()}
  borders = found.sentences[found.documents].tolist()
  assert {*borders} <= {0, *ends}  # no part is of two documents
  for row in rows:
    assert sum(end - begin + 2 for begin, end in row) <= length
    assert is_mixed or len(row) == 1
    # Fewer than 8 tokens in a part are a document, or a row begins with them.
    for begin, end in row[1:]:
      assert end - begin >= 8 or {begin, end} <= {*borders}


@hypothesis.given(DOCUMENTS)
def test_rows_end_where_nothing_more_fits_or_a_stub_would_be(lengths):
  found, length = texts(lengths), 40
  rows = make(found, length)
  ends = found.sentences.tolist()
  for row, after in itertools.pairwise(rows):
    end, used = row[-1][1], sum(end - begin + 2 for begin, end in row)
    sentence = ends[ends.index(end) + 1] - end
    continues = end not in found.sentences[found.documents]
    if used + sentence + 2 * (not continues) <= length:
      # The sentence, or what it leaves of its document, is shorter than 8, or
      # what was before it.
      left = after[0][1] - end - sentence
      assert min(sentence, left) < 8


@hypothesis.given(DOCUMENTS, st.booleans())
def test_passes_made_together_or_alone_give_the_same_rows(lengths, is_mixed):
  found, options = texts(lengths), {'passes': 5, 'shuffled': True}
  alone = make(found, 30, is_mixed, at_once=1, **options)
  for n in (2, 5):
    assert make(found, 30, is_mixed, at_once=n, **options) == alone
  tokens = [k for row in alone for part in row for k in range(*part)]
  count = collections.Counter(tokens)
  assert {*count.values()} == {5} and len(count) == found.sentences[-1]


def test_passes_differ_in_order_and_in_where_documents_are_cut():
  found = texts([[4] * 17] * 9)  # of 68 tokens
  for is_mixed in (True, False):
    rows = make(found, 42, is_mixed, passes=2, shuffled=True)
    parts = [part for row in rows for part in row]
    order = [begin // 68 for begin, _ in parts if begin % 68 == 0]
    first, second = order[:9], order[9:]
    assert sorted(first) == sorted(second) == list(range(9))
    assert sorted(first) != first != second
    assert len({*parts}) > 0.6 * len(parts)
    # Two rows of 40 tokens hold a document, wherever it is cut.
    assert is_mixed or len(rows) == 2 * 9 * 2
