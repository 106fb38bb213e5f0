"""Tests of masking whole words and spans, and of masking in packed rows."""

import numpy as np
import pytest

from bert_jax.data import hashing
from tests.data.masking_test import (
  CLS,
  CONTINUES,
  MASK,
  SEP,
  UNITS,
  VOCAB,
  chosen,
  example,
  hidden,
  masked,
  repeated,
)


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


def test_spans_share_80_10_10_over_all():
  batch = example(rows=20_000, length=20, real=20)
  out = masked(batch, unit='span')  # 3 tokens: mostly one span
  _, labels, new = chosen(batch, out)
  # At worst 20,000 draws, one for the 3 tokens of a row.
  assert abs((new == MASK).mean() - 0.8) < 3 * (0.16 / 20_000) ** 0.5 + 0.0002
  assert abs((new == labels).mean() - 0.1) < 3 * (0.09 / 20_000) ** 0.5 + 0.0002


def packed_and_alone(rows=60, length=64):
  """Returns rows of up to 3 pairs, their keys, and the pairs one by one."""
  rng = np.random.default_rng(2)
  packed = {
    name: np.zeros((rows, length), np.int32)
    for name in ('input_ids', 'input_mask', 'sequence_ids', 'position_ids')
  }
  keys = hashing.mix(5, np.arange(rows)[:, None], np.arange(3))
  alone, places = [], []
  for row in range(rows):
    start = 0
    for k in range(row % 4):  # a row of 0 is all padding
      a, b = rng.integers(1, 9, 2)
      words = rng.integers(10, VOCAB, a + b).tolist()
      ids = [CLS, *words[:a], SEP, *words[a:], SEP]
      here = slice(start, start + len(ids))
      packed['input_ids'][row, here] = ids
      packed['input_mask'][row, here] = 1
      packed['sequence_ids'][row, here] = k + 1
      packed['position_ids'][row, here] = np.arange(len(ids))
      alone.append(ids)
      places.append((row, k, start))
      start += len(ids)
  plain = {
    name: np.zeros((len(alone), 30), np.int32)
    for name in ('input_ids', 'input_mask')
  }
  for i, ids in enumerate(alone):
    plain['input_ids'][i, : len(ids)] = ids
    plain['input_mask'][i, : len(ids)] = 1
  return packed, keys, plain, places


@UNITS
def test_a_packed_pair_is_masked_as_if_it_stood_alone(unit):
  packed, keys, plain, places = packed_and_alone()
  own = np.array([keys[row, k] for row, k, _ in places])
  a = masked(packed, keys, unit=unit, predictions=3)
  b = masked(plain, own, unit=unit, predictions=3)
  seen = 0
  for i, (row, _, start) in enumerate(places):
    n = plain['input_mask'][i].sum()
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
