"""Tests of the words that training compares."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.ops import tied_decoder
from bert_jax.parallel import row_keys
from bert_jax.pretraining import pretrain

SHARES = np.array([0.1, 0.05, 0.4, 0.02, 0.2, 0.08, 0.15])


def list_groups(groups):
  ends = zip(groups.firsts, groups.firsts + groups.sizes, strict=True)
  return [groups.order[a:b].tolist() for a, b in ends]


def test_half_of_the_groups_are_the_most_frequent_words():
  found = pretrain.group_words(4, 7, SHARES)
  assert list_groups(found) == [[2], [4], [6, 0], [5, 1, 3]]
  unknown = pretrain.group_words(4, 7, None)
  assert list_groups(unknown) == [[0], [1], [2, 3], [4, 5, 6]]
  for count in (0, 7, 9):  # all words need no groups
    assert pretrain.group_words(count, 7, SHARES) is None


@pytest.mark.parametrize('count', [2, 3, 6, 500])
def test_each_word_is_in_one_group(count):
  size = max(7, 2 * count)
  groups = pretrain.group_words(count, size, None)
  assert sum(list_groups(groups), []) == list(range(size))
  assert len(groups.sizes) == count and groups.sizes.min() >= 1


def test_draws_are_fair_and_in_their_groups():
  groups = pretrain.group_words(4, 7, SHARES)
  keys = jax.random.split(jax.random.key(0), 3000)
  samples = jax.vmap(lambda key: pretrain.draw_words(groups, key))(keys)
  np.testing.assert_allclose(np.exp(samples.log_counts[0]), [1, 1, 2, 3])
  words = np.asarray(samples.words)
  for column, group in zip(words.T, list_groups(groups), strict=True):
    drawn, times = np.unique(column, return_counts=True)
    assert drawn.tolist() == sorted(group)
    np.testing.assert_allclose(times / len(words), 1 / len(group), atol=0.04)


def test_all_devices_draw_the_same_words():
  groups, key = pretrain.group_words(100, 1000, None), jax.random.key(3)
  first, second = (
    pretrain.draw_words(groups, row_keys.for_rows(key, 8 * i, i))
    for i in (0, 1)
  )
  assert (first.words == second.words).all()
  other = pretrain.draw_words(groups, jax.random.fold_in(key, 1))
  assert (first.words != other.words).any()


def test_the_probability_of_a_label_is_estimated_without_bias():
  """Of 1 / p(label), the mean over all samples is that of all words."""
  rng = np.random.default_rng(0)
  x, table, bias = (
    jnp.asarray(rng.normal(0, 1, shape), 'float32')
    for shape in ((1, 4), (7, 4), 7)
  )
  groups = pretrain.group_words(4, 7, SHARES)
  counts = jnp.log(jnp.asarray(groups.sizes, 'float32'))
  sum_losses = jax.jit(tied_decoder.sum_losses, static_argnums=4)
  for label in range(7):
    at = jnp.array([label])
    given = bias, table[at], 7, at, jnp.ones(1)
    means = []
    for words in itertools.product(*list_groups(groups)):
      sample = tied_decoder.Sample(jnp.array(words), counts)
      rows = table[sample.words]
      loss, _ = sum_losses(x, rows, *given, sample)
      means.append(jnp.exp(loss))
    exact, _ = sum_losses(x, table, *given)
    assert float(np.mean(means)) == pytest.approx(float(jnp.exp(exact)), 1e-5)
