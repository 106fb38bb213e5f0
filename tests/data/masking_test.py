"""Tests of masking."""

import numpy as np
import pytest

from bert_jax.config import FIELDS
from bert_jax.data import hashing, masking

CLS, SEP, MASK, VOCAB = 2, 3, 4, 1000
CONTINUES = np.arange(VOCAB) >= 700  # '##' pieces
_UNITS = FIELDS['objective.mask_unit'].allowed
UNITS = pytest.mark.parametrize('unit', _UNITS)


def example(rows=400, length=40, real=32):
  rng = np.random.default_rng(0)
  ids = rng.integers(5, VOCAB, (rows, length)).astype(np.int32)
  ids[:, 0] = CLS
  ids[:, 10] = ids[:, real - 1] = SEP
  mask = np.zeros_like(ids)
  mask[:, :real] = 1
  return {'input_ids': ids * mask, 'input_mask': mask, 'segment_ids': mask * 0}


def masked(
  batch, keys=None, mix=(0.8, 0.1, 0.1), predictions=8, unit='token', rate=0.15
):
  rows, length = batch['input_ids'].shape
  keys = hashing.mix(9, np.arange(rows)) if keys is None else keys
  pack = keys.size // rows
  return masking.mask_tokens(
    batch,
    keys,
    unit=unit,
    rate=rate,
    mix=mix,
    max_predictions=predictions,
    size=masking.count_predictions(length, rate, predictions, pack),
    vocab_size=VOCAB,
    mask_id=MASK,
    special=np.array([CLS, SEP]),
    continues=CONTINUES[batch['input_ids']],
  )


def chosen(out):
  """Returns (positions, labels, new ids) of all predictions, flat."""
  used = out['masked_lm_weights'] > 0
  new = np.take_along_axis(out['input_ids'], out['masked_lm_positions'], 1)
  return out['masked_lm_positions'][used], out['masked_lm_ids'][used], new[used]


@pytest.mark.parametrize(
  'tokens, predictions, expected',
  # round(0.15 n) with [CLS] and [SEP] counted, at least 1, at most P.
  [(128, 20, 19), (512, 76, 76), (512, 100, 77), (5, 20, 1), (30, 20, 4)],
)
def test_number_of_predictions(tokens, predictions, expected):
  batch = example(rows=3, length=max(tokens, 12), real=tokens)
  if tokens < 12:
    batch['input_ids'][:, 10] = 0
  out = masked(batch, predictions=predictions)
  assert out['masked_lm_weights'].sum(1).tolist() == [expected] * 3
  assert out['masked_lm_weights'].shape == (3, predictions)


@UNITS
def test_labels_are_the_hidden_words_and_nothing_else_changes(unit):
  batch = example()
  out = masked(batch, unit=unit)
  positions, labels, _ = chosen(out)
  # round(0.15 * 32) = 5 of each row; whole words may leave some over.
  counts = out['masked_lm_weights'].sum(1).astype(int)
  assert (counts == 5).all() if unit == 'token' else counts.max() == 5
  rows = np.repeat(np.arange(400), counts)
  assert (batch['input_ids'][rows, positions] == labels).all()
  changed = batch['input_ids'] != out['input_ids']
  allowed = np.zeros_like(changed)
  allowed[rows, positions] = True
  assert not (changed & ~allowed).any()
  # Special tokens and padding are never chosen.
  assert set(positions) == set(range(1, 31)) - {10}
  assert not {CLS, SEP, 0} & set(labels.tolist())
  for positions, weights in zip(
    out['masked_lm_positions'], out['masked_lm_weights'], strict=True
  ):
    used = positions[weights > 0]
    assert (np.diff(used) > 0).all()
    assert (positions[weights == 0] == 0).all()


@UNITS
def test_shares_of_80_10_10(unit):
  batch = example(rows=4000)
  _, labels, new = chosen(masked(batch, unit=unit))
  # Of n = 20,000 predictions (words: some less) 3 sigma are
  # 3 sqrt(0.8 0.2 / n) = 0.0085 and 3 sqrt(0.1 0.9 / n) = 0.0064; a random
  # word is [MASK] or the same one in 1 of 1,000 cases. Spans have a draw each.
  n = 4000 if unit == 'span' else len(new)
  assert len(new) > 19_000
  assert abs((new == MASK).mean() - 0.8) < 3 * (0.16 / n) ** 0.5 + 0.0002
  assert abs((new == labels).mean() - 0.1) < 3 * (0.09 / n) ** 0.5 + 0.0002
  random = new[(new != MASK) & (new != labels)]
  assert random.min() < 50 and random.max() > VOCAB - 50


@pytest.mark.parametrize(
  'length, rate, most, pack, expected',
  [
    (128, 0.15, 20, 1, 20),
    (512, 0.15, 76, 1, 76),
    (512, 0.15, 76, 3, 78),  # 76.8 + 3 * 0.55
    (512, 0.15, 20, 3, 60),  # 20 for each pair
  ],
)
def test_room(length, rate, most, pack, expected):
  assert masking.count_predictions(length, rate, most, pack) == expected


@pytest.mark.parametrize('rate', [0.01, 0.15, 0.9])
@pytest.mark.parametrize('pack', [2, 8])
def test_no_row_has_more_predictions_than_room(rate, pack):
  rng = np.random.default_rng(0)
  for length in (24, 128):
    worst = 0
    for _ in range(500):
      cuts = np.sort(rng.integers(0, length + 1, pack - 1))
      sizes = np.diff([0, *cuts, length])
      sizes = sizes[sizes >= 3]
      worst = max(worst, np.clip(np.rint(sizes * rate), 1, 76).sum())
    assert worst <= masking.count_predictions(length, rate, 76, pack)


def test_next_tokens_stay_in_their_pair():
  batch = {
    'input_ids': np.array([[2, 7, 3, 2, 8, 3, 0]], np.int32),
    'input_mask': np.array([[1, 1, 1, 1, 1, 1, 0]], np.int32),
    'sequence_ids': np.array([[1, 1, 1, 2, 2, 2, 0]], np.int32),
  }
  out = masking.predict_next_tokens(batch)
  assert out['masked_lm_positions'].tolist() == [[0, 1, 2, 3, 4, 5]]
  assert out['masked_lm_ids'].tolist() == [[7, 3, 2, 8, 3, 0]]
  assert out['masked_lm_weights'].tolist() == [[1, 1, 0, 1, 1, 0]]
