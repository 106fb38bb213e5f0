"""Tests of initial word embeddings from the neighbours of words."""

import numpy as np
import pytest

from bert_jax.pretraining import pretrain, word_vectors
from tests.pretraining.pretrain_test import make_config

# Animals and colours stand in the same places, each in its own order.
ANIMALS, COLOURS, SEES, A, UNSEEN = (1, 2, 3), (4, 5, 6), 7, 8, 9
WORDS = 10


def make_rows():
  """Returns rows 'ANIMAL sees a COLOUR ANIMAL', all combinations, [N, S]."""
  rows = [
    (first, SEES, A, colour, second)
    for first in ANIMALS
    for colour in COLOURS
    for second in ANIMALS
  ]
  return np.array(rows, np.int32)


def compare(vectors, first, second):
  """Returns the cosine of the angle between two words' vectors."""
  x, y = vectors[first], vectors[second]
  return x @ y / np.linalg.norm(x) / np.linalg.norm(y)


def test_words_with_the_same_neighbours_are_similar():
  vectors = word_vectors.make(make_rows(), WORDS, 8)
  for group, other in ((ANIMALS, COLOURS), (COLOURS, ANIMALS)):
    for word in group[1:]:
      assert compare(vectors, group[0], word) > 0.99
    assert compare(vectors, group[0], other[0]) < -0.5  # 0 if not centred


def test_vectors_have_the_size_asked_for_and_those_of_absent_words_are_zero():
  for size in (4, 64):  # fewer and more than words
    vectors = word_vectors.make(make_rows(), WORDS, size)
    assert vectors.shape == (WORDS, size) and vectors.dtype == np.float32
    assert not vectors[[0, UNSEEN]].any()
    assert np.sqrt(np.mean(vectors[1:9] ** 2)) == pytest.approx(1, abs=0.2)


def test_what_is_not_text_has_no_neighbours():
  """A word beside -1 has one neighbour less, not another one behind it."""
  rows = make_rows()
  apart = np.full((len(rows), 12), -1, np.int32)
  apart[:, 1:6] = rows
  two = np.full((len(rows), 11), -1, np.int32)
  two[:, :5], two[:, 6:] = rows, rows[::-1]
  for found in (apart, two):
    np.testing.assert_allclose(
      word_vectors._weigh_contexts(found, WORDS),
      word_vectors._weigh_contexts(rows, WORDS),
      atol=1e-6,
    )


def test_rank_is_that_of_the_singular_value_decomposition():
  matrix = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
  matrix[:, :5] *= 20  # as word counts have a few large directions
  u, s = word_vectors._decompose(matrix, 5)
  right_u, right_s, _ = np.linalg.svd(matrix)
  np.testing.assert_allclose(s, right_s[:5], rtol=1e-3)
  products = np.abs(np.sum(u * right_u[:, :5], 0))
  np.testing.assert_allclose(products, 1, atol=1e-2)
  q = word_vectors._make_rotation(6)
  np.testing.assert_allclose(q @ q.T, np.eye(6), atol=1e-12)


def test_a_run_starts_with_the_vectors_of_its_text(directory):
  c = make_config(objective__word_vectors=True)
  start = pretrain.make_task(c, directory).start
  old = np.random.default_rng(0).normal(0, 0.02, (128, 8)).astype(np.float32)
  new = {'embeddings': {'word': {'embedding': old}}}
  (params, facts), (again, _) = start(new), start(new)
  assert facts == {}
  words = params['embeddings']['word']['embedding']
  changed = (old != words).any(1)
  assert 0 < changed.sum() < 60  # the words of the text
  # Four times as long as random ones.
  assert words[changed].std() == pytest.approx(4 * 0.02, rel=0.3)
  np.testing.assert_array_equal(words, again['embeddings']['word']['embedding'])
  c.objective.word_vectors = False
  assert pretrain.make_task(c, directory).start is None


@pytest.mark.parametrize(
  'rows', [np.full((3, 4), -1), np.array([[5, -1, -1, 6]])]
)
def test_text_without_neighbours_has_no_vectors(rows):
  assert not word_vectors.make(rows.astype(np.int32), WORDS, 4).any()
