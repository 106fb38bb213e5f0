"""Tests of the batches of fine-tuning."""

import numpy as np

from bert_jax.finetuning import completion, task_data
from bert_jax.finetuning.classes import class_data, classify
from bert_jax.train import task as task_lib
from tests import models
from tests.finetuning import made


def make_batches(tmp_path, **changes):
  c = made.make_config(
    made.write_source(tmp_path / 'source'),
    made.write_texts(tmp_path / 'texts'),
    **changes,
  )
  c = completion.complete(class_data.make, c, str(tmp_path / 'run'))
  form, folder = class_data.FORMAT, str(tmp_path / 'data')
  task_data.write(form, c, folder, models.TOKENIZER)
  data = task_data.read(form, folder)
  [phase] = task_lib.list_phases(c)
  return classify.make_batches(c, data), phase, data


def test_an_epoch_has_each_row_once_in_an_order_of_the_seed(tmp_path):
  orders = []
  for seed in (0, 1):
    batches, phase, _ = make_batches(tmp_path, seed=seed)
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
  batches, phase, _ = make_batches(tmp_path)
  whole = batches.train_batch(phase, 3)
  part = batches.train_batch(phase, 3, np.array([6, 1]))
  for name, x in part.items():
    np.testing.assert_array_equal(x, whole[name][[6, 1]])


def test_the_last_held_out_batch_is_filled_up_with_weight_0(tmp_path):
  batches, phase, data = make_batches(tmp_path)
  assert batches.eval_batches(phase) == 2  # 10 rows in batches of 8
  weights = batches.eval_batch(phase, 1)['label_weights']
  assert weights.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
  assert batches.list_rows(phase, 1) == range(8, 10)
  kept = None
  for i in range(2):
    labels = batches.eval_batch(phase, i)['labels']
    logits = {'logits': np.eye(2, dtype='f4')[labels]}
    kept = classify.collect(batches, kept, phase, i, logits)
  assert len(np.concatenate(kept)) == 10
  truth = data.splits['dev'].labels
  assert classify.score(['accuracy'], truth, kept) == {'accuracy': 1}


def test_held_out_rows_may_be_limited(tmp_path):
  batches, phase, _ = make_batches(tmp_path, **{'eval.sequences': 3})
  assert batches.eval_batches(phase) == 1
  weights = batches.eval_batch(phase, 0)['label_weights']
  assert weights.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
