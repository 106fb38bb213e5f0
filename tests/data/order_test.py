"""Tests of the order of the data."""

import numpy as np

from bert_jax.data import order


def test_every_epoch_holds_every_record_once_in_another_order():
  record, epoch = order.find_records(3, np.arange(21), 7)
  assert epoch.tolist() == [0] * 7 + [1] * 7 + [2] * 7
  orders = [tuple(record[i : i + 7].tolist()) for i in (0, 7, 14)]
  assert all(sorted(o) == list(range(7)) for o in orders)
  assert len(set(orders)) == 3


def test_a_row_does_not_depend_on_how_many_are_asked_for():
  whole, _ = order.find_records(3, np.arange(100), 7)
  parts = [
    order.find_records(3, np.arange(r, r + 1), 7)[0][0] for r in range(100)
  ]
  assert whole.tolist() == parts


def test_far_rows_need_not_go_through_those_before():
  far = np.arange(10**15, 10**15 + 256)
  record, epoch = order.find_records(3, far, 10**9)
  assert (epoch == 10**6).all()
  assert len(set(record.tolist())) == 256
