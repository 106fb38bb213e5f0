"""Tests of stateless random numbers and of the order of the data."""

import numpy as np
import pytest

from bert_jax.data import hashing


@pytest.mark.parametrize('size', [1, 2, 3, 7, 64, 1000, 65537])
def test_permute_is_a_bijection(size):
  found = hashing.permute(np.arange(size), hashing.mix(5), size)
  assert sorted(found.tolist()) == list(range(size))


def test_values_are_fixed_for_ever():
  # A checkpoint relies on them: the order of the data would change.
  assert hashing.mix(1, 2, 3).tolist() == [15020427595393229491]
  order = hashing.permute(np.arange(10), hashing.mix(3), 10)
  assert order.tolist() == [2, 8, 7, 0, 6, 4, 3, 9, 1, 5]


def test_every_epoch_holds_every_record_once_in_another_order():
  record, epoch = hashing.find_records(3, np.arange(21), 7)
  assert epoch.tolist() == [0] * 7 + [1] * 7 + [2] * 7
  orders = [tuple(record[i : i + 7].tolist()) for i in (0, 7, 14)]
  assert all(sorted(o) == list(range(7)) for o in orders)
  assert len(set(orders)) == 3


def test_a_row_does_not_depend_on_how_many_are_asked_for():
  whole, _ = hashing.find_records(3, np.arange(100), 7)
  parts = [
    hashing.find_records(3, np.arange(r, r + 1), 7)[0][0] for r in range(100)
  ]
  assert whole.tolist() == parts
