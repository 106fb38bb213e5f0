"""Tests that a row of several pairs is the same as a row for each."""

import dataclasses
import functools
import pathlib
import tempfile

import jax
import numpy as np

from bert_jax.data import masking, store
from bert_jax.data.pairs import pack
from bert_jax.model import bert_config, heads, parameters
from bert_jax.pretraining import pretrain
from tests.data import made

VOCAB, CLS, SEP, MASK, PACK = 50, 1, 2, 3, 3
MODEL = bert_config.BertConfig(VOCAB, 8, 2, 2, 16, 32, dropout=0.0)
TOLERANCE = 1e-6  # of the size of what is compared


# Five pairs, three and two of which fill two rows: with [CLS] and [SEP], of 32
# tokens 13 + 10 + 8 = 31 and 17 + 14 = 31.
SIZES, LENGTH = ((7, 7), (6, 4), (4, 3), (9, 2), (3, 2)), 32


def make_pairs():
  rng = np.random.default_rng(0)
  return [
    tuple(rng.integers(5, VOCAB, n).tolist() for n in pair) + (bool(k % 2),)
    for k, pair in enumerate(SIZES)
  ]


@functools.cache
def make_rows():
  """Returns (plain batch [5, S], packed batch [2, S], rows of pairs)."""
  pairs, length = make_pairs(), LENGTH
  sizes = [len(a) + len(b) + 3 for a, b, _ in pairs]
  rows = pack(sizes, length, PACK)
  keys = np.arange(100, 105, dtype=np.uint64)
  row_keys = np.array([(row + [0] * PACK)[:PACK] for row in rows])
  plain = read([[pair] for pair in pairs], length, 1)
  packed = read([[pairs[i] for i in row] for row in rows], length, PACK)
  mask = functools.partial(
    masking.mask_tokens,
    unit='token',
    rate=0.15,
    mix=(0.8, 0.1, 0.1),
    max_predictions=20,
    vocab_size=VOCAB,
    mask_id=MASK,
    special=np.array([CLS, SEP]),
    continues=None,
  )
  size = masking.count_predictions(length, 0.15, 20, PACK)
  return (
    mask(plain, keys, size=20),
    mask(packed, keys[row_keys], size=size),
    rows,
  )


def read(rows, length, pack, kind='pairs'):
  """Takes rows through a file, as training does."""
  with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    shard = made.shard(folder, 'rows', rows, length, VOCAB, pack)
    reader = store.Reader(directory, [shard], length, VOCAB, pack, kind)
    return reader.rows(np.arange(len(rows)), CLS, SEP)


@functools.cache
def make_params():
  """Returns (module, parameters away from 0 and 1: no bias can hide)."""
  module = heads.PretrainingModel(
    dataclasses.replace(MODEL, attention_dropout=0.0)
  )
  init = functools.partial(parameters.init, module)
  params = jax.jit(init)(jax.random.key(0))
  rng = np.random.default_rng(1)
  return module, jax.tree.map(
    lambda x: x + 0.1 * rng.normal(size=x.shape).astype('f4'), params
  )


@functools.cache
def loss_and_gradient():
  module, params = make_params()

  def loss(params, batch):
    sums, _ = pretrain.compute_sums(module, params, batch, None)
    return sums['mlm_loss'] + sums.get('nsp_loss', 0)

  return functools.partial(jax.jit(jax.value_and_grad(loss)), params)


def only(batch, row, k):
  """Returns a batch in which nothing but pair k of a row has weight."""
  ids = batch.get('sequence_ids', batch['input_mask'])
  at = np.take_along_axis(ids, batch['masked_lm_positions'], 1)
  this = np.arange(len(ids)) == row
  mlm = batch['masked_lm_weights'] * this[:, None] * (at == k + 1)
  nsp = np.zeros_like(batch['next_sentence_weights'])
  nsp[(row, k) if nsp.ndim == 2 else row] = 1
  return {**batch, 'masked_lm_weights': mlm, 'next_sentence_weights': nsp}


def assert_close(packed, plain):
  (loss, gradient), (expected, expected_gradient) = packed, plain
  np.testing.assert_allclose(loss, expected, rtol=TOLERANCE)
  difference = jax.tree.map(lambda a, b: a - b, gradient, expected_gradient)
  assert norm(difference) < TOLERANCE * norm(expected_gradient)


def norm(tree):
  leaves = [np.asarray(x, 'f8') for x in jax.tree.leaves(tree)]
  return np.sqrt(sum((x * x).sum() for x in leaves))


def test_every_pair_has_the_loss_and_gradient_of_its_own_row():
  plain, packed, rows = make_rows()
  assert sorted(map(len, rows)) == [2, 3]
  run = loss_and_gradient()
  for row, members in enumerate(rows):
    for k, i in enumerate(members):
      mine = only(packed, row, k)
      its = only(plain, i, 0)
      count = its['masked_lm_weights'].sum()
      assert count == mine['masked_lm_weights'].sum() > 0
      assert_close(run(mine), run(its))


def test_padding_pairs_move_nothing():
  _, packed, rows = make_rows()
  row = [len(members) for members in rows].index(2)
  run = loss_and_gradient()
  expected = run(packed)
  changed = {name: x.copy() for name, x in packed.items()}
  assert changed['next_sentence_weights'][row].tolist() == [1, 1, 0]
  changed['next_sentence_labels'][row, 2] = 1
  changed['cls_positions'][row, 2] = 17
  padding = changed['input_mask'] == 0
  assert padding.any()
  changed['input_ids'][padding] = 9
  changed['position_ids'][padding] = 5
  loss, gradient = run(changed)
  assert loss == expected[0]
  jax.tree.map(np.testing.assert_array_equal, gradient, expected[1])


def test_a_part_of_a_document_is_computed_as_if_it_were_alone():
  rng = np.random.default_rng(2)
  parts = [(rng.integers(5, VOCAB, n).tolist(), False) for n in (11, 6, 9, 20)]
  mixed = read([parts[:3], parts[3:]], 32, 3, 'full_sentences')
  alone = read([[part] for part in parts], 32, 1, 'doc_sentences')
  module, params = make_params()
  encode = functools.partial(module.apply, {'params': params}, method='encode')
  packed, single = (np.asarray(encode(x, True)) for x in (mixed, alone))
  found = packed[mixed['input_mask'] > 0]  # in the same order
  expected = single[alone['input_mask'] > 0]
  assert len(found) == 11 + 6 + 9 + 20 + 2 * 4
  np.testing.assert_allclose(found, expected, atol=1e-5)
