"""Tests of masking."""

import numpy as np
import pytest

from bert_jax.data import hashing, masking

CLS, SEP, MASK, VOCAB = 2, 3, 4, 1000


def example(rows=400, length=40, real=32):
  rng = np.random.default_rng(0)
  ids = rng.integers(5, VOCAB, (rows, length)).astype(np.int32)
  ids[:, 0] = CLS
  ids[:, 10] = ids[:, real - 1] = SEP
  mask = np.zeros_like(ids)
  mask[:, :real] = 1
  return {'input_ids': ids * mask, 'input_mask': mask, 'segment_ids': mask * 0}


def masked(batch, keys=None, mix=(0.8, 0.1, 0.1), predictions=8):
  rows = len(batch['input_ids'])
  return masking.mask_tokens(
    batch,
    hashing.mix(9, np.arange(rows)) if keys is None else keys,
    rate=0.15,
    mix=mix,
    max_predictions=predictions,
    vocab_size=VOCAB,
    mask_id=MASK,
    special=np.array([CLS, SEP]),
  )


def chosen(batch, out):
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


def test_labels_are_the_hidden_words_and_nothing_else_changes():
  batch = example()
  out = masked(batch)
  positions, labels, _ = chosen(batch, out)
  rows = np.repeat(np.arange(400), 5)  # round(0.15 * 32) = 5 of each row
  assert (batch['input_ids'][rows, positions] == labels).all()
  changed = batch['input_ids'] != out['input_ids']
  allowed = np.zeros_like(changed)
  allowed[rows, positions] = True
  assert not (changed & ~allowed).any()


def test_special_tokens_and_padding_are_never_chosen():
  batch = example()
  positions, labels, _ = chosen(batch, masked(batch))
  assert set(positions) == set(range(1, 31)) - {10}
  assert not {CLS, SEP, 0} & set(labels.tolist())


def test_positions_ascend_and_do_not_repeat():
  out = masked(example())
  for positions, weights in zip(
    out['masked_lm_positions'], out['masked_lm_weights'], strict=True
  ):
    used = positions[weights > 0]
    assert (np.diff(used) > 0).all()
    assert (positions[weights == 0] == 0).all()


def test_shares_of_80_10_10():
  batch = example(rows=4000)
  _, labels, new = chosen(batch, masked(batch))
  # 20,000 predictions: 4 sigma are 0.011 and 0.0085.
  assert abs((new == MASK).mean() - 0.8) < 0.0115
  assert abs((new == labels).mean() - 0.1) < 0.0087
  random = new[(new != MASK) & (new != labels)]
  assert random.min() < 50 and random.max() > VOCAB - 50


@pytest.mark.parametrize(
  'mix, check',
  [
    ((1, 0, 0), lambda labels, new: (new == MASK).all()),
    ((0, 0, 1), lambda labels, new: (new == labels).all()),
    ((0, 1, 0), lambda labels, new: (new != labels).mean() > 0.99),
  ],
)
def test_other_mixes_of_table_8(mix, check):
  batch = example()
  _, labels, new = chosen(batch, masked(batch, mix=mix))
  assert check(labels, new)


def test_masks_are_a_function_of_the_key_alone():
  batch = example(rows=6)
  keys = hashing.mix(1, np.arange(6))
  whole = masked(batch, keys)
  part = masked({k: v[4:] for k, v in batch.items()}, keys[4:])
  for name, value in part.items():
    assert (whole[name][4:] == value).all()
  assert (
    masked(batch, hashing.mix(2, np.arange(6)))['input_ids']
    != whole['input_ids']
  ).any()


def test_next_tokens():
  batch = {
    'input_ids': np.array([[2, 7, 8, 3, 0]], np.int32),
    'input_mask': np.array([[1, 1, 1, 1, 0]], np.int32),
  }
  out = masking.next_tokens(batch)
  assert out['masked_lm_positions'].tolist() == [[0, 1, 2, 3]]
  assert out['masked_lm_ids'].tolist() == [[7, 8, 3, 0]]
  assert out['masked_lm_weights'].tolist() == [[1, 1, 1, 0]]
