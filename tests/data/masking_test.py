"""Tests of masking."""

import numpy as np
import pytest

from bert_jax.config import FIELDS
from bert_jax.data import hashing, masking, row_format
from tests.data import made

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
    continues=CONTINUES,
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


def repeated(words, rows, first=None):
  """Returns a batch of equal rows: [CLS] words[:first] [SEP] rest [SEP]."""
  first = len(words) // 2 if first is None else first
  row = [CLS, *words[:first], SEP, *words[first:], SEP]
  ids = np.tile(np.array(row, np.int32), (rows, 1))
  return {'input_ids': ids, 'input_mask': np.ones_like(ids)}


def hidden(out):
  """Returns bool [B, S]: what is to be predicted."""
  found = np.zeros(out['input_ids'].shape, bool)
  row, slot = np.nonzero(out['masked_lm_weights'])
  found[row, out['masked_lm_positions'][row, slot]] = True
  return found


def test_every_token_is_as_likely_as_any_other():
  batch = repeated(range(10, 28), rows=20_000)  # 21 tokens: 3 are predicted
  share = hidden(masked(batch)).mean(0)
  wanted = 3 / 18
  three_sigma = 3 * (wanted * (1 - wanted) / 20_000) ** 0.5
  assert share[[0, 10, 20]].tolist() == [0, 0, 0]
  inside = np.delete(share, [0, 10, 20])
  # 1 of 370 exceeds 3 sigma by chance; there are 18.
  assert (abs(inside - wanted) < three_sigma).sum() >= 17
  assert (abs(inside - wanted) < 1.5 * three_sigma).all()


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


@pytest.mark.parametrize('rate', [0.01, 0.15, 0.4, 0.9])
@pytest.mark.parametrize('pack', [2, 3, 8])
def test_no_row_has_more_predictions_than_room(rate, pack):
  rng = np.random.default_rng(0)
  for length in (24, 128):
    worst = 0
    for _ in range(2000):
      cuts = np.sort(rng.integers(0, length + 1, pack - 1))
      sizes = np.diff([0, *cuts, length])
      sizes = sizes[sizes >= 3]
      worst = max(worst, np.clip(np.rint(sizes * rate), 1, 76).sum())
    assert worst <= masking.count_predictions(length, rate, 76, pack)


def test_a_batch_of_padding_has_nothing_to_predict():
  zeros = np.zeros((2, 8), np.int32)
  for unit in _UNITS:
    out = masked({'input_ids': zeros, 'input_mask': zeros}, unit=unit)
    assert out['masked_lm_weights'].sum() == 0
    assert (out['input_ids'] == 0).all()


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


@pytest.mark.parametrize('packed', [False, True])
def test_shuffling_moves_the_tokens_around_the_masks_within_their_pair(packed):
  batch, keys = example(rows=50), hashing.mix(9, np.arange(50))
  pair = np.zeros_like(batch['input_ids'])
  if packed:  # the second pair begins after the first [SEP]
    batch['input_ids'][:, 11] = CLS
    batch['sequence_ids'] = batch['input_mask'] * 1
    batch['sequence_ids'][:, 11:32] = 2
    places = np.arange(40)
    places = np.where(places < 11, places, places - 11) * batch['input_mask']
    batch['position_ids'] = places.astype(np.int32)
    keys = hashing.mix(9, np.arange(50)[:, None], range(2))
    pair = batch['sequence_ids']
  out = masked(batch, keys)
  found = masking.shuffle_context(
    out, keys, vocab_size=VOCAB, special=np.array([CLS, SEP])
  )
  before, after = out['input_ids'], found.pop('input_ids')
  assert all(found[name] is out[name] for name in found)
  fixed = (batch['input_mask'] == 0) | np.isin(before, [CLS, SEP])
  row, k = np.nonzero(out['masked_lm_weights'])
  fixed[row, out['masked_lm_positions'][row, k]] = True
  assert (after == before)[fixed].all()
  assert (after == before)[~fixed].mean() < 0.15
  for k in np.unique(pair):
    for old, new, own in zip(before, after, pair == k, strict=True):
      assert sorted(old[own]) == sorted(new[own])


@pytest.mark.parametrize('unit', ['word', 'span'])
def test_words_are_hidden_whole_and_no_span_crosses_sep(unit):
  # Words of 1, 2 and 3 tokens; SEP ends a word, even before a piece.
  words = [10, 11, 700, 12, 701, 702, 703, 13, 704]
  batch = repeated(words, rows=3000, first=6)
  found = hidden(masked(batch, unit=unit, rate=0.3))  # round(3.6) = 4
  for group in ([1], [2, 3], [4, 5, 6], [8], [9, 10]):
    assert (found[:, group].all(1) == found[:, group].any(1)).all()
    assert 0 < found[:, group[0]].mean() < 1
  assert found.sum(1).max() == 4
  if unit == 'word':  # 4 can always be reached, but 3 + 2 is passed over
    assert set(found.sum(1)) <= {3, 4} and (found.sum(1) == 4).mean() > 0.5


def greedy(order, sizes, count):
  """Google's do_whole_word_mask on words by number."""
  taken, total = set(), 0
  for word in order:
    if total >= count:
      break
    if total + sizes[word] <= count:
      taken.add(word)
      total += sizes[word]
  return taken


def test_words_are_taken_greedily_in_random_order():
  rng = np.random.default_rng(1)
  rows, length = 200, 40
  batch = example(rows, length, real=length)
  batch['input_ids'][:, 1:10] = rng.integers(600, 800, (rows, 9))
  keys = hashing.mix(3, np.arange(rows))
  found = hidden(masked(batch, keys, unit='word'))
  for row in range(rows):
    ids = batch['input_ids'][row]
    words = []
    for i in range(1, length - 1):
      if i != 10 and CONTINUES[ids[i]] and i not in (1, 11):
        words[-1].append(i)
      elif i != 10:
        words.append([i])
    score = hashing.mix(keys[row], 1, np.array([w[0] for w in words]))
    order = np.argsort(score)
    taken = greedy(order, [len(w) for w in words], count=6)  # 0.15 * 40
    wanted = sorted(i for w in taken for i in words[w])
    assert np.flatnonzero(found[row]).tolist() == wanted


def test_spans_are_runs_of_whole_words_up_to_ten():
  # Without pieces, one text, and room for one span only.
  batch = repeated(range(10, 410), rows=4000, first=200)
  first = masked(batch, unit='span', rate=0.001, predictions=1)
  assert (hidden(first).sum(1) == 1).all()
  found = hidden(masked(batch, unit='span', rate=0.05, predictions=20))
  assert (found.sum(1) == 20).all()
  # Where a hidden run begins and ends, runs being now and then neighbours.
  edges = np.diff(found.astype(int), axis=1)
  runs = [np.flatnonzero(e == -1) - np.flatnonzero(e == 1) for e in edges]
  lengths = np.concatenate(runs)
  # 3.8 words in the mean, less what the count cuts off.
  assert 3 < lengths.mean() < 4.2
  # Of the ten lengths 1 has the share 0.2 / (1 - 0.8^10) = 0.224.
  assert 0.2 < (lengths == 1).mean() < 0.26


def test_a_span_shares_one_draw():
  batch = repeated(range(10, 20), rows=6000, first=9)
  out = masked(batch, unit='span', rate=0.3, mix=(0.5, 0.0, 0.5))  # 4 of 13
  _, labels, new = chosen(out)
  assert ((new == MASK) | (new == labels)).all()  # none is random
  masks = out['input_ids'] == MASK
  found = hidden(out)
  # Where the count is filled by one span, all or none of it is [MASK].
  runs = found[:, 1:10]
  one = (np.diff(runs.astype(int), axis=1) == 1).sum(1) + runs[:, 0] == 1
  one &= found[:, 11] == 0
  assert one.sum() > 500
  # Two spans can lie side by side, so some single runs are of two draws.
  whole = masks[one].sum(1)
  assert np.isin(whole, [0, 4]).mean() > 0.75
  # By tokens, each with a draw of its own, it would be 2 / 2^4 = 0.125.
  tokens = masked(batch, unit='token', rate=0.3, mix=(0.5, 0.0, 0.5))
  counts = (tokens['input_ids'] == MASK).sum(1)
  assert np.isin(counts, [0, 4]).mean() < 0.2


def lay_out(rows, length, most):
  """Returns a batch of rows of up to `most` pairs; those of none are padding."""
  found = [made.record(row) if row else b'' for row in rows]
  n, _, first, second, ids, _ = row_format.parse(
    found, most, row_format.UNIT, length
  )
  batch, is_text = row_format.lay_out(n, first, second, length, CLS, SEP)
  batch['input_ids'][is_text] = ids
  return batch


@UNITS
def test_a_packed_pair_is_masked_as_if_it_stood_alone(unit):
  rng = np.random.default_rng(2)

  def text():
    return rng.integers(10, VOCAB, rng.integers(1, 9)).tolist()

  rows = [[(text(), text(), 0) for _ in range(k % 4)] for k in range(60)]
  places = [(row, k) for row, x in enumerate(rows) for k in range(len(x))]
  packed = lay_out(rows, 64, 3)
  plain = lay_out([[pair] for row in rows for pair in row], 30, 1)
  keys = hashing.mix(5, np.arange(60)[:, None], np.arange(3))
  own = np.array([keys[place] for place in places])
  a = masked(packed, keys, unit=unit, predictions=3)
  b = masked(plain, own, unit=unit, predictions=3)
  seen = 0
  for i, (row, k) in enumerate(places):
    start, n = packed['cls_positions'][row, k], plain['input_mask'][i].sum()
    here = slice(start, start + n)
    assert (a['input_ids'][row, here] == b['input_ids'][i, :n]).all()
    wanted = b['masked_lm_positions'][i][b['masked_lm_weights'][i] > 0]
    at = a['masked_lm_positions'][row][a['masked_lm_weights'][row] > 0]
    inside = (at >= start) & (at < start + n)
    assert (at[inside] - start).tolist() == wanted.tolist()
    seen += inside.sum()
  assert a['masked_lm_weights'].sum() == seen > 90
  used = a['masked_lm_weights'] > 0
  rows = np.nonzero(used)[0]
  labels = packed['input_ids'][rows, a['masked_lm_positions'][used]]
  assert (a['masked_lm_ids'][used] == labels).all()
  assert (a['input_ids'][0] == 0).all()  # padding stays padding
