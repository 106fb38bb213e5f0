"""Chooses the labels: masked tokens (section 3.1) or the next token.

Every choice is a hash of a pair's key and a position in that pair, so a pair is
masked in the same way in its own row and in a packed row. A row of sentences is
masked as a whole, as if it were one pair. Arrays over all
T = B · S cells of a batch are flat here; a cell is row · S + position.
"""

import math
from typing import NamedTuple

import numpy as np

from bert_jax.data import hashing

# Tags of hashes, so that different draws for one position are independent.
_CHOOSE, _ACTION, _WORD, _SPAN = 1, 2, 3, 4

# Words per span: geometric with p = 0.2, at most 10, mean 3.8 (SpanBERT, arXiv
# 1907.10529, section 3.1).
_LENGTHS = np.cumsum(0.2 * 0.8 ** np.arange(10))
_LENGTHS /= _LENGTHS[-1]


class _Pairs(NamedTuple):
  """The M = B · N pairs of a batch."""

  keys: np.ndarray  # [M] uint64
  count: np.ndarray  # [M] int, tokens to predict
  pair: np.ndarray  # [T] int, index of the pair that a cell belongs to
  position: np.ndarray  # [T] int, position of a cell in its pair
  candidate: np.ndarray  # [T] bool, whether a cell may be chosen


def mask_tokens(
  batch: dict[str, np.ndarray],
  keys: np.ndarray,
  *,
  unit: str,
  rate: float,
  mix: tuple[float, float, float],
  max_predictions: int,
  size: int,
  vocab_size: int,
  mask_id: int,
  special: np.ndarray,
  continues: np.ndarray,
) -> dict[str, np.ndarray]:
  """Chooses tokens to predict and masks them.

  Google's procedure: of the n tokens of a pair (with [CLS] and [SEP]),
  round(n · rate), at least 1 and at most `max_predictions`, are predicted.
  Until that count is reached, units are drawn:

  * token: tokens, uniformly.
  * word: whole words. A word that would exceed the count is skipped. Each of
    its tokens draws from `mix` separately, as in Google's code.
  * span: runs of words that start at a random word and end before [SEP], a word
    that is already masked or a word that would exceed the count. All tokens of
    a span share one draw from `mix` (SpanBERT).

  Words do not go on over [CLS] or [SEP] (in Google's code, a text that begins
  within a word continues the text before).

  Args:
    batch: as `store.Reader.rows` makes it.
    keys: [B] uint64, or [B, N] for rows of up to N pairs.
    mix: probabilities of [MASK], a random token, the same token; they sum to 1.
    size: P, from `count_predictions` of this rate or a higher one.
    special: ids that are never chosen.
    continues: bool, whether tokens go on the word before, as '##' pieces: [B, S], or
      [V] where the id says it.

  Returns:
    The batch with new `input_ids`, and with `masked_lm_positions`,
    `masked_lm_ids` (int32) and `masked_lm_weights` (float32), [B, P] each.
    Positions ascend; unused ones are 0, of weight 0.
  """
  ids = batch['input_ids']
  pairs = _pairs(batch, keys, rate, max_predictions, vocab_size, special)
  if unit == 'token':
    leader = _choose_tokens(pairs, ids.shape)
  else:
    after = np.zeros(ids.shape, bool)  # whether the cell before is a candidate
    after[:, 1:] = pairs.candidate.reshape(ids.shape)[:, :-1]
    going_on = continues[ids] if continues.ndim == 1 else continues
    start = pairs.candidate & ~(going_on & after).ravel()  # of words
    leader = _choose_runs(pairs, ids.shape, start, unit == 'span')

  cell = np.flatnonzero(leader >= 0)
  masked = _hide(ids, pairs, cell, leader[cell], mix, vocab_size, mask_id)
  return {**batch, 'input_ids': masked, **_predictions(ids, cell, size)}


def _hide(ids, pairs, cell, lead, mix, vocab_size, mask_id):
  """Returns [B, S] ids with [MASK], a random id or the same in chosen cells.

  `lead` are the cells whose draws from `mix` apply to them.
  """
  key = pairs.keys[pairs.pair[cell]]
  draw = hashing.to_uniform(hashing.mix(key, _ACTION, pairs.position[lead]))
  word = hashing.mix(key, _WORD, pairs.position[cell]) % np.uint64(vocab_size)
  masked = ids.flatten()
  masked[cell] = np.where(
    draw < mix[0],
    mask_id,
    np.where(draw < mix[0] + mix[1], word.astype(ids.dtype), masked[cell]),
  )
  return masked.reshape(ids.shape)


def _predictions(ids, cell, size: int) -> dict[str, np.ndarray]:
  """Returns positions, labels (unmasked ids) and weights [B, P] of cells [N]."""
  row, position = np.divmod(cell, ids.shape[1])
  at = row, np.arange(len(cell)) - np.searchsorted(row, row)
  positions, labels, weights = (
    np.zeros((len(ids), size), kind)
    for kind in (np.int32, np.int32, np.float32)
  )
  positions[at], labels[at], weights[at] = position, ids.ravel()[cell], 1
  return {
    'masked_lm_positions': positions,
    'masked_lm_ids': labels,
    'masked_lm_weights': weights,
  }


def count_predictions(
  length: int, rate: float, max_predictions: int, pack: int
) -> int:
  """Returns P, the maximum of predictions per row of `length` tokens."""
  if pack == 1:
    return max_predictions
  # A pair of t ≥ 3 tokens has at most max(1, round(t · rate)) predictions. That
  # exceeds t · rate by at most 0.5 (rounding) or 1 - 3 · rate (at least one).
  extra = max(0.5, 1 - 3 * rate)
  return min(
    math.floor(length * rate + pack * extra), pack * max_predictions, length
  )


def predict_next_tokens(
  batch: dict[str, np.ndarray], reverse: bool = False
) -> dict[str, np.ndarray]:
  """Makes the next token the label of every position (left-to-right LM).

  Position i predicts the token at i + 1 unless that is padding or the [CLS] of
  another pair; if `reverse`, i + 1 predicts the token at i. The arrays that are
  added are those of `mask_tokens`, [B, S - 1].
  """
  ids = batch['input_ids']
  same = batch['input_mask'][:, 1:] > 0
  if 'sequence_ids' in batch:
    sequence = batch['sequence_ids']
    same = same & (sequence[:, 1:] == sequence[:, :-1])
  positions = np.arange(ids.shape[1] - 1, dtype=np.int32) + reverse
  return {
    **batch,
    'masked_lm_positions': np.tile(positions, (len(ids), 1)),
    'masked_lm_ids': ids[:, :-1] if reverse else ids[:, 1:],
    'masked_lm_weights': same.astype(np.float32),
  }


def _pairs(batch, keys, rate, max_predictions, vocab_size, special) -> _Pairs:
  ids, real = batch['input_ids'], batch['input_mask'].ravel() > 0
  rows, length = ids.shape
  pack = keys.size // rows
  pair = np.repeat(np.arange(rows) * pack, length)
  position = np.tile(np.arange(length), rows)
  if pack > 1:
    pair += np.maximum(batch['sequence_ids'].ravel() - 1, 0)
    position = batch['position_ids'].ravel()
  tokens = np.bincount(pair[real], minlength=rows * pack)
  count = np.rint(tokens * rate).astype(int)  # half to even, as round()
  count = np.clip(count, 1, max_predictions)
  usual = np.ones(vocab_size, bool)
  usual[special] = False
  candidate = real & usual[ids.ravel()]
  return _Pairs(keys.ravel(), count, pair, position, candidate)


def _shuffle(pairs: _Pairs, shape, start):
  """Shuffles, within each pair, the cells where `start` [T] is true.

  Returns cells, grouped by pair; cells per pair and index of its first cell, [M].
  """
  cell = np.flatnonzero(start)
  pair = pairs.pair[cell]
  row, position = np.divmod(cell, shape[1])
  keys = hashing.mix(pairs.keys, _CHOOSE)
  score = hashing.mix_in(keys[pair], pairs.position[cell])
  # One integer, so that rows sort fast: 8 bits for the pair, 40 random bits
  # (ties, if there ever are any, keep their order), 16 for the position.
  within = (pair - row * (len(pairs.keys) // shape[0])).astype(np.uint64)
  number = within << np.uint64(56) | score >> np.uint64(24) << np.uint64(16)
  none = np.iinfo(np.uint64).max
  grid = np.full(shape, none)
  grid.ravel()[cell] = number | position.astype(np.uint64)
  grid.sort(axis=1)
  order = (grid[grid < none] & np.uint64(0xFFFF)).astype(int)
  order += row * shape[1]
  size = np.bincount(pair, minlength=len(pairs.keys))
  return order, size, np.cumsum(size) - size


def _choose_tokens(pairs: _Pairs, shape) -> np.ndarray:
  """Returns [T] int: each chosen cell itself, -1 elsewhere."""
  order, _, first = _shuffle(pairs, shape, pairs.candidate)
  pair = pairs.pair[order]
  chosen = order[np.arange(len(order)) - first[pair] < pairs.count[pair]]
  leader = np.full(len(pairs.pair), -1)
  leader[chosen] = chosen
  return leader


def _choose_runs(pairs: _Pairs, shape, start, spans: bool) -> np.ndarray:
  """Chooses runs of words: of one word each or, if `spans`, of up to 10.

  Returns as `_choose_tokens`; of a span, the first cell in place of each.
  """
  word = np.cumsum(start) - 1  # [T]
  sizes = np.bincount(word[pairs.candidate])
  begins = np.flatnonzero(start)  # [W]
  reach = np.ones(len(begins), np.int8)  # words that a run from there may have
  if spans:
    key = pairs.keys[pairs.pair[begins]]
    draw = hashing.to_uniform(hashing.mix(key, _SPAN, pairs.position[begins]))
    reach = np.searchsorted(_LENGTHS, draw, side='right') + 1
    text = np.cumsum(~pairs.candidate)[begins]  # grows at [SEP] and [CLS]
    end = np.searchsorted(text, text, side='right')
    reach = np.minimum(reach, end - np.arange(len(end)))
  order, size, first = _shuffle(pairs, shape, start)
  # [W + 1] the first word of each word's run; the last is for cells before any.
  span = np.full(len(sizes) + 1, -1)
  total = np.zeros_like(pairs.count)
  ahead = np.arange(reach.max(initial=1))[:, None]
  for step in range(size.max(initial=0)):
    active = np.flatnonzero((step < size) & (total < pairs.count))
    if not len(active):
      break
    lead = word[order[first[active] + step]]
    run = np.minimum(lead + ahead, len(sizes) - 1)  # [L, A] words
    grown = np.cumsum(sizes[run], 0) + total[active]
    fits = (grown <= pairs.count[active]) & (span[run] < 0)
    fits = np.logical_and.accumulate(fits & (ahead < reach[lead]))
    span[run[fits]] = np.broadcast_to(lead, fits.shape)[fits]
    total[active] += (sizes[run] * fits).sum(0)
  cell = np.flatnonzero(pairs.candidate & (span >= 0)[word])
  leader = np.full(len(word), -1)
  leader[cell] = begins[span[word[cell]]] if spans else cell
  return leader
