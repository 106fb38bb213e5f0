"""Tests of the order of the data."""

import threading
import time

import numpy as np
import pytest

from bert_jax.data import loader


def test_every_epoch_holds_every_record_once_in_another_order():
  record, epoch = loader.order(3, np.arange(21), 7)
  assert epoch.tolist() == [0] * 7 + [1] * 7 + [2] * 7
  orders = [tuple(record[i : i + 7].tolist()) for i in (0, 7, 14)]
  assert all(sorted(o) == list(range(7)) for o in orders)
  assert len(set(orders)) == 3


def test_a_row_does_not_depend_on_how_many_are_asked_for():
  whole, _ = loader.order(3, np.arange(100), 7)
  parts = [loader.order(3, np.arange(r, r + 1), 7)[0][0] for r in range(100)]
  assert whole.tolist() == parts


def test_far_rows_come_at_once():
  start = time.monotonic()
  loader.order(3, np.arange(10**15, 10**15 + 256), 10**9)
  assert time.monotonic() - start < 0.1


def test_prefetch_keeps_the_order_and_ends():
  assert list(loader.prefetch(lambda t: t * t, 3, 8)) == [9, 16, 25, 36, 49]


def test_prefetch_raises_where_the_batch_is_awaited():
  def make(t):
    if t == 2:
      raise ValueError('broken record')
    return t

  batches = loader.prefetch(make, 0, 5)
  assert [next(batches), next(batches)] == [0, 1]
  with pytest.raises(ValueError, match='broken record'):
    next(batches)


def test_closing_prefetch_ends_its_thread():
  before = threading.active_count()
  batches = loader.prefetch(lambda t: t, 0, 10**9)
  next(batches)
  assert threading.active_count() == before + 1
  batches.close()
  assert threading.active_count() == before
