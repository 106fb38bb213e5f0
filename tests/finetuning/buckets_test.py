"""Tests of batches of rows of similar length."""

import dataclasses

import numpy as np
import pytest

from bert_jax.config import recipes
from bert_jax.data import hashing
from bert_jax.finetuning import buckets
from bert_jax.train import task
from tests import models
from tests.finetuning import made

# 300 rows in batches of 8, four times each.
PHASE = task.Phase(0, 0, 150, 128, 8, 1, 1)
LENGTHS = np.random.default_rng(0).geometric(1 / 30, 300).clip(3, 128)


def find_all(seed=0):
  found = buckets.Order(seed, LENGTHS)
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
  assert buckets.list_lengths(phase) == lengths


def test_a_batch_is_as_long_as_its_longest_row_needs():
  for records, length in find_all():
    shorter = [x for x in buckets.list_lengths(PHASE) if x < length]
    assert max([0, *shorter]) < LENGTHS[records].max() <= length


def test_a_batch_has_no_row_twice_within_an_epoch():
  twice = [
    step for step, (x, _) in enumerate(find_all()) if len(set(x.tolist())) < 8
  ]
  # An epoch ends after 37.5, 75, 112.5 and 150 batches: in two windows.
  assert len(twice) <= 4


@pytest.mark.parametrize('rows', [3, 8, 20, 64 * 8 + 3])
def test_data_of_any_size_are_seen_as_often_as_without(rows):
  found = buckets.Order(0, LENGTHS.repeat(2)[:rows])
  seen = [found.find_batch(PHASE, step)[0] for step in range(PHASE.steps)]
  plain, _ = hashing.find_records(0, np.arange(PHASE.steps * 8), rows)
  counts = np.bincount(np.concatenate(seen), minlength=rows)
  np.testing.assert_array_equal(counts, np.bincount(plain, minlength=rows))


def test_the_order_is_a_function_of_the_seed_and_the_step():
  first, other = find_all(), find_all(1)
  batches = [{frozenset(records) for records, _ in x} for x in (first, other)]
  assert len(batches[0] & batches[1]) < 10  # not only in another order
  resumed = buckets.Order(0, LENGTHS)
  for step in (149, 3, 77):
    records, length = resumed.find_batch(PHASE, step)
    np.testing.assert_array_equal(records, first[step][0])
    assert length == first[step][1]


def test_long_and_short_batches_alternate():
  """They are not sorted by length, which would be a curriculum."""
  lengths = np.array([length for _, length in find_all()])
  early, late = lengths[:32], lengths[32:64]
  assert abs(early.mean() - late.mean()) < 0.3 * lengths.mean()


def test_there_is_less_padding():
  sorted_tokens = sum(length for _, length in find_all())
  rows = np.arange(PHASE.steps * 8)
  records, _ = hashing.find_records(0, rows, 300)
  as_they_come = sum(
    buckets.choose_length(PHASE, LENGTHS[x]) for x in records.reshape(-1, 8)
  )
  assert sorted_tokens < 0.65 * as_they_come < 0.65 * 128 * PHASE.steps


BERT = dataclasses.replace(made.BERT, max_positions=64)


@pytest.mark.parametrize(
  'backend, size, updates, expected',
  [
    ('cpu', 'tiny', 22, False),
    ('cpu', 'tiny', 4_000, True),
    ('cpu', 'base', 1, False),
    ('cpu', 'base', 22, True),
    ('tpu', 'base', 200, False),
    ('tpu', 'base', 100_000, True),
    ('gpu', 'base', 22, False),
  ],
)
def test_lengths_are_compiled_if_the_updates_earn_it_back(
  backend, size, updates, expected, monkeypatch
):
  monkeypatch.setattr(buckets.jax, 'default_backend', lambda: backend)
  c = recipes.finetuning(size)
  c.phases.steps = (updates,)
  assert buckets.pays(c) == expected


@pytest.mark.slow
def test_a_run_compiles_all_lengths_first(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(buckets, 'pays', lambda *_: True)
  params = models.make_params(BERT)
  source = str(tmp_path / 'source')
  made.hugging_face.export(source, params, BERT, models.TOKENIZER)
  rng = np.random.default_rng(0)
  rows = [f'{"the " * rng.integers(0, 60)}{x},{x}' for x in ('cat', 'dog') * 90]
  folder = tmp_path / 'texts'
  texts = made.write_csv(folder, train=rows[:160], dev=rows[160:])
  c = made.make_config(source, texts, **{'log.every': 1})
  c.phases.seq_length = (64,)
  c.finetuning.by_length, c.finetuning.epochs = True, 2.0
  c.eval.every = 10
  run = made.train(c, tmp_path)
  assert len(made.list_logged(run, 'train')) == 40
  # Every ten steps; the last evaluation is what is scored and written.
  found = [x['step'] for x in made.list_logged(run, 'eval')]
  assert found == [10, 20, 30, 40]
  out = capsys.readouterr().out
  assert 'attention' not in out  # how it computes is in metrics.jsonl
  assert out.index('programs in ') < out.index('step 1/')
