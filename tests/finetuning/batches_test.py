"""Tests of the batches of fine-tuning."""

import dataclasses
import types

import numpy as np
import pytest

from bert_jax.config import recipes
from bert_jax.finetuning import batches
from bert_jax.trainer import task
from tests.finetuning import made

# 300 rows in batches of 8, four times each.
PHASE = task.Phase(0, 0, 150, 128, 8, 1, 1, 0.15, 1e4)
LENGTHS = np.random.default_rng(0).geometric(1 / 30, 300).clip(3, 128)


def make(lengths=LENGTHS, seed=0, by_length=True):
  split = types.SimpleNamespace(lengths=lengths, size=len(lengths))
  return batches.Batches(seed, split, 0, by_length)


def find_all(seed=0, **fields):
  found = make(seed=seed, **fields)
  return [found.find_batch(PHASE, step) for step in range(PHASE.steps)]


@pytest.mark.parametrize(
  'longest, lengths',
  [
    (8, (8,)),
    (40, (8, 16, 24, 32, 40)),
    (72, (16, 24, 40, 56, 72)),
    (512, (64, 128, 256, 384, 512)),
  ],
)
def test_there_are_few_lengths_up_to_the_longest(longest, lengths):
  phase = dataclasses.replace(PHASE, seq_length=longest)
  assert batches.list_lengths(phase) == lengths


def test_a_batch_is_as_long_as_its_longest_row_needs_and_less_is_padded():
  found = find_all()
  for records, length in found:
    shorter = [x for x in batches.list_lengths(PHASE) if x < length]
    assert max([0, *shorter]) < LENGTHS[records].max() <= length
  sorted_tokens = sum(length for _, length in found)
  as_they_come = sum(
    batches.choose_length(PHASE, LENGTHS[x])
    for x, _ in find_all(by_length=False)
  )
  assert sorted_tokens < 0.65 * as_they_come < 0.65 * 128 * PHASE.steps
  # They are not sorted by length, which would be a curriculum.
  lengths = np.array([length for _, length in found])
  early, late = lengths[:32], lengths[32:64]
  assert abs(early.mean() - late.mean()) < 0.3 * lengths.mean()


@pytest.mark.parametrize('rows', [3, 8, 20, 64 * 8 + 3])
def test_data_of_any_size_are_seen_as_often_as_without(rows):
  lengths, counts = LENGTHS.repeat(2)[:rows], []
  for by_length in (True, False):
    seen = find_all(lengths=lengths, by_length=by_length)
    seen = np.concatenate([x for x, _ in seen])
    counts.append(np.bincount(seen, minlength=rows))
  np.testing.assert_array_equal(*counts)


def test_the_order_is_a_function_of_the_seed_and_the_step():
  first, other = find_all(), find_all(1)
  both = [{frozenset(records) for records, _ in x} for x in (first, other)]
  assert len(both[0] & both[1]) < 10  # not only in another order
  resumed = make()
  for step in (149, 3, 77):
    records, length = resumed.find_batch(PHASE, step)
    np.testing.assert_array_equal(records, first[step][0])
    assert length == first[step][1]


@pytest.mark.parametrize(
  'backend, size, updates, expected',
  [
    ('cpu', 'tiny', 22, False),
    ('cpu', 'tiny', 4_000, True),
    ('cpu', 'base', 22, True),
    ('tpu', 'base', 200, False),
    ('tpu', 'base', 100_000, True),
  ],
)
def test_lengths_are_compiled_if_the_updates_earn_it_back(
  backend, size, updates, expected, monkeypatch
):
  monkeypatch.setattr(batches.jax, 'default_backend', lambda: backend)
  c = recipes.finetuning(size)
  c.phases.steps = (updates,)
  [phase] = task.list_phases(c)
  assert batches.pays(phase, c.model) == expected


def test_rows_are_batched_whoever_asks_and_filled_up_with_weight_0(tmp_path):
  made_up, phase, *_ = made.make_task(made.configure(tmp_path), tmp_path)
  whole = made_up.train_batch(phase, 3)
  part = made_up.train_batch(phase, 3, np.array([6, 1]))
  for name, x in part.items():
    np.testing.assert_array_equal(x, whole[name][[6, 1]])
  assert made_up.eval_batches(phase) == 2  # 10 rows in batches of 8
  weights = made_up.eval_batch(phase, 1)['label_weights']
  assert weights.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize('by_length', [True, False])
def test_predictions_are_put_in_the_order_of_the_rows(
  tmp_path, by_length, monkeypatch
):
  monkeypatch.setattr(batches, 'pays', lambda *_: by_length)
  texts = made.write_texts(tmp_path / 'texts')
  # Sorted by length, they would be in another order.
  rows = [f'{"the " * n}cat,cat' for n in (3, 0, 2, 5, 0, 1, 4, 6, 7, 0)]
  made.write_csv(tmp_path / 'texts', dev=rows)
  c = made.configure(tmp_path, texts)
  found, phase, _, data = made.make_task(c, tmp_path)
  for name, batches_of in (('dev', found), ('test', found.others['test'])):
    kept, split = None, data.splits[name]
    for i in range(batches_of.eval_batches(phase)):
      batch = batches_of.eval_batch(phase, i)
      # The class that is "predicted" is what follows [CLS].
      logits = np.eye(20, dtype='f4')[batch['input_ids'][:, 1]]
      kept = batches_of.collect(kept, phase, i, {'logits': logits})
    first = split.encoded.ids[split.encoded.ends - split.lengths + 1]
    np.testing.assert_array_equal(kept['chosen'], first)
    assert len(set(first)) > 1 and len(kept['probability']) == split.size
