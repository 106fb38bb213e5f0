"""Tests of the batches of fine-tuning."""

import numpy as np
import pytest

from bert_jax.finetuning import buckets
from tests.finetuning import made


def make_batches(tmp_path, **changes):
  return made.make_task(made.configure(tmp_path, **changes), tmp_path)


def test_an_epoch_has_each_row_once_in_an_order_of_the_seed(tmp_path):
  orders = []
  for seed in (0, 1):
    batches, phase, *_ = make_batches(tmp_path, seed=seed)
    rows = [
      tuple(row)
      for step in range(12)
      for row in batches.train_batch(phase, step)['input_ids'].tolist()
    ]
    first, second = rows[:48], rows[48:]
    assert sorted(first) == sorted(second) and first != second
    orders.append(first)
  assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]


def test_rows_of_a_batch_do_not_depend_on_who_asks(tmp_path):
  batches, phase, *_ = make_batches(tmp_path)
  whole = batches.train_batch(phase, 3)
  part = batches.train_batch(phase, 3, np.array([6, 1]))
  for name, x in part.items():
    np.testing.assert_array_equal(x, whole[name][[6, 1]])


def test_the_last_held_out_batch_is_filled_up_with_weight_0(tmp_path):
  batches, phase, *_ = make_batches(tmp_path)
  assert batches.eval_batches(phase) == 2  # 10 rows in batches of 8
  weights = batches.eval_batch(phase, 1)['label_weights']
  assert weights.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize('by_length', [True, False])
def test_predictions_are_put_in_the_order_of_the_rows(
  tmp_path, by_length, monkeypatch
):
  monkeypatch.setattr(buckets, 'pays', lambda *_: by_length)
  texts = made.write_texts(tmp_path / 'texts')
  # Sorted by length, they would be in another order.
  rows = [f'{"the " * n}cat,cat' for n in (3, 0, 2, 5, 0, 1, 4, 6, 7, 0)]
  made.write_csv(tmp_path / 'texts', dev=rows)
  c = made.configure(tmp_path, texts)
  batches, phase, _, data = made.make_task(c, tmp_path)
  made.check_order(batches, phase, data)
