"""Tests of samples and of rows that are held out."""

import collections
import types

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import splits


def test_a_sample_of_a_file_sorted_by_class_has_all_classes():
  labels = np.repeat(['a', 'b', 'c'], 100)
  chosen = splits.take_sample(range(300), 30)
  assert len(chosen) == 30 and sorted(set(chosen)) == chosen.tolist()
  assert min(collections.Counter(labels[chosen]).values()) >= 5
  larger = splits.take_sample(range(300), 60)
  assert set(chosen) < set(larger)
  assert splits.take_sample(range(300), 0).tolist() == list(range(300))
  assert splits.take_sample(range(3), 9).tolist() == [0, 1, 2]


def test_a_sample_has_whole_groups_but_for_the_last():
  groups = np.repeat(np.arange(20), 5)
  sizes = collections.Counter(groups[splits.take_sample(groups, 32)])
  assert sorted(sizes.values()) == [2, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize('share', [0.1, 0.25, 0.5])
def test_as_large_a_share_of_each_class_is_held_out(share):
  rng = np.random.default_rng(0)
  labels = rng.permutation(np.repeat(['a', 'b', 'c'], [20, 80, 300]))
  out = splits.hold_out('x', share, range(400), labels)
  for label, count in collections.Counter(labels).items():
    assert abs(out[labels == label].sum() - share * count) <= 1
  again = splits.hold_out('x', share, range(400), labels)
  np.testing.assert_array_equal(out, again)


def test_each_class_keeps_a_row_to_train_on():
  labels = [f'class {i // 2}' for i in range(60)] + ['alone']
  out = splits.hold_out('x', 0.45, range(61), labels)
  assert set(np.array(labels)[~out]) == set(labels)
  assert out.sum() == 27


def test_numbers_of_all_sizes_are_held_out():
  numbers = np.random.default_rng(0).permutation(200) / 10
  out = splits.hold_out('x', 0.1, range(200), numbers)
  assert out.sum() == 20
  assert np.bincount((numbers[out] // 5).astype(int)).tolist() == [5, 5, 5, 5]


def test_groups_are_held_out_as_a_whole():
  groups = np.repeat(np.arange(10), [1, 9, 2, 8, 3, 7, 4, 6, 5, 5])
  out = splits.hold_out('x', 0.2, groups)
  assert len(set(groups[out])) == 2
  assert not set(groups[out]) & set(groups[~out])


def test_a_file_of_one_group_cannot_be_split():
  with pytest.raises(errors.UserError, match='x has 9 rows, of which .* out 0'):
    splits.hold_out('x', 0.1, [0] * 9)


def make_content(*keys):
  units = [types.SimpleNamespace(key=x, name=i) for i, x in enumerate(keys, 1)]
  return splits.Content('x', units)


def test_units_that_are_training_units_are_found():
  train, other = make_content(('a', 'b'), 'c'), make_content('d', 'c', 'c')
  assert splits.find_repeated(train, other) == [2, 3]
  assert splits.find_repeated(train, train) == []
