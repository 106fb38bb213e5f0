"""Makes sentence pairs for next sentence prediction, by Google's procedure.

A pair is two runs of sentences, truncated at their ends, so each of its texts
is a slice of one document. Pairs are made of token offsets; no token is copied.
All documents and passes advance together, one pair at a time, in numpy.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data import hashing

SPECIAL_TOKENS = 3  # [CLS] first [SEP] second [SEP]

# Tags of hashes, so that different draws for one pair are independent.
_TARGET, _CUT, _OTHER, _START, _FRONT = 1, 2, 3, 4, 5

_PIECES = 5  # of a long sentence in a row; of longer ones more is truncated
_STEPS = 32  # pairs per document whose random numbers are drawn at once
_WORD = 64  # bits per hash


@dataclasses.dataclass(frozen=True)
class Texts:
  """The documents of a logical shard as offsets into its concatenated tokens.

  Each array of offsets has one more entry, the end; no sentence is empty.
  """

  sentences: np.ndarray  # [sentences + 1] int64, token at which each begins
  documents: np.ndarray  # [documents + 1] int64, first sentence of each
  # [documents, 2] int64, begin and end of the documents that random texts for
  # each come from, two or more.
  pools: np.ndarray
  # [documents + 1] int64, sum of the weights, in draws of random texts, of all
  # documents before each.
  weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Pairs:
  """Pairs as ranges of token offsets, without [CLS] and [SEP]."""

  spans: np.ndarray  # int64 [N, 2, 2], begin and end of both texts
  is_random: np.ndarray  # bool [N], whether the second is of another document

  def __len__(self):
    return len(self.is_random)

  @property
  def tokens(self) -> np.ndarray:
    """Returns the tokens of each pair, special tokens included, [N]."""
    sizes = self.spans[:, :, 1] - self.spans[:, :, 0]
    return sizes.sum(1) + SPECIAL_TOKENS


def cut_sentences(texts: Texts, begins_word: np.ndarray, room: int) -> Texts:
  """Cuts sentences that do not fit a row into pieces, which then count as such.

  Google's code truncates them. Cuts are before words (bool [tokens]) unless a
  word is longer than half the room of a row, which is in tokens.
  """
  size = -(-room // _PIECES)
  reach = max(room // 2, 2 * size)
  cuts: list[int] = []
  for k in np.flatnonzero(np.diff(texts.sentences) > room).tolist():
    at, end = texts.sentences[k : k + 2].tolist()
    while end - at >= 2 * size:
      # argmax is 0 if no word begins there.
      at += size + int(begins_word[at + size : min(at + reach, end)].argmax())
      cuts.append(at)
  sentences = np.sort(np.concatenate([texts.sentences, np.array(cuts, int)]))
  documents = np.searchsorted(sentences, texts.sentences[texts.documents])
  return dataclasses.replace(texts, sentences=sentences, documents=documents)


def make_pairs(
  texts: Texts,
  index: np.ndarray,
  keys: np.ndarray,
  *,
  max_seq_length: int,
  short_seq_prob: float,
) -> Pairs:
  """Returns the pairs of documents, one document after the other.

  Sentences are collected until they fill a target length, which is drawn once
  per document, and split at a random point. The second text is the part after
  it or, with probability 1/2 and always for a single sentence, text from a
  random other document of its pool; then the unused sentences are put back.

  Args:
    index: [M] indices of the documents to make pairs of; may repeat.
    keys: [M] uint64, the random key of each of them, which alone decides.
    max_seq_length: maximum of tokens per pair, with [CLS] and two [SEP].
  """
  room = max_seq_length - SPECIAL_TOKENS
  short = hashing.to_uniform(hashing.mix(keys, _TARGET, 0)) < short_seq_prob
  drawn = hashing.to_uniform(hashing.mix(keys, _TARGET, 1))
  target = np.where(short, 2 + (drawn * (room - 1)).astype(np.int64), room)
  steps = _steps(texts, index, keys, target)
  columns = [np.concatenate(column) for column in zip(*steps, strict=True)]
  order = np.argsort(columns[0], kind='stable')
  lane, begin, split, stop, step = (column[order] for column in columns)
  is_random = stop < 0  # see `_steps`
  draws = hashing.mix(keys[lane], step)
  first = texts.sentences[np.stack([begin, split], 1)]  # [N, 2]
  second = texts.sentences[np.stack([split, np.abs(stop)], 1)]
  at = np.flatnonzero(is_random)
  wanted = (target[lane] - (first[:, 1] - first[:, 0]))[at]
  second[at] = _random_texts(texts, index[lane][at], wanted, draws[at])
  spans = np.stack([first, second], 1)
  _truncate(spans, room, draws)
  return Pairs(spans, is_random)


def _steps(texts: Texts, index, keys, target) -> Iterator[tuple]:
  """Yields (document, begin, split, stop, step) of one pair of each document.

  Begin, split and stop are sentence indices: the first text is begin to split,
  a true second text is split to stop. A negative stop marks a random pair.
  """
  lane = np.arange(len(index))
  begin, end = texts.documents[index], texts.documents[index + 1]
  step = 0
  while len(lane):
    ahead = np.arange(step, step + _STEPS, dtype=np.uint64)[:, None]
    draws = hashing.mix(hashing.mix(keys[lane], ahead), _CUT)  # [steps, lanes]
    cuts, coins = hashing.to_uniform(draws), (draws & np.uint64(1)).astype(bool)
    active = np.arange(len(lane))
    for k in range(_STEPS):
      full = texts.sentences[begin] + target[lane]
      stop = np.minimum(np.searchsorted(texts.sentences, full), end)
      sentences = stop - begin
      cut = cuts[k][active]
      split = begin + 1 + (cut * (sentences - 1)).astype(np.int64)
      is_random = (sentences == 1) | coins[k][active]
      where = np.full(len(lane), step + k, np.uint64)
      yield lane, begin, split, np.where(is_random, -stop, stop), where
      begin = np.where(is_random, split, stop)
      more = begin < end
      if not more.all():
        lane, begin, end = lane[more], begin[more], end[more]
        active = active[more]
      if not len(lane):
        return
    step += _STEPS


def _random_texts(texts: Texts, index, wanted, draws) -> np.ndarray:
  """Returns token ranges [N, 2] that start at random in another document."""
  before = texts.weights
  low, high = before[texts.pools[index]].T
  own = before[index + 1] - before[index]
  drawn = hashing.to_uniform(hashing.mix(draws, _OTHER)) * (high - low - own)
  drawn = low + drawn.astype(np.int64)
  drawn += np.where(drawn >= before[index], own, 0)
  other = np.searchsorted(before, drawn, 'right') - 1
  begin, end = texts.documents[other], texts.documents[other + 1]
  start = hashing.to_uniform(hashing.mix(draws, _START)) * (end - begin)
  begin = begin + start.astype(np.int64)
  # One sentence at least, even if the first text has filled the target.
  full = texts.sentences[begin] + np.maximum(wanted, 1)
  stop = np.minimum(np.searchsorted(texts.sentences, full), end)
  return texts.sentences[np.stack([begin, stop], 1)]


def _truncate(spans: np.ndarray, room: int, draws: np.ndarray):
  """Removes tokens from the front or back of the longer text until both fit.

  Of two equally long texts, the second is shortened. Of n removed tokens, a
  binomial number comes off the front: the set bits among n random bits.
  """
  sizes = spans[:, :, 1] - spans[:, :, 0]  # [N, 2]
  at = np.flatnonzero(sizes.sum(1) > room)
  sizes, draws = sizes[at], draws[at]
  excess = sizes.sum(1) - room
  longer = np.minimum(np.abs(sizes[:, 0] - sizes[:, 1]), excess)
  rest = excess - longer
  is_first = sizes[:, 0] > sizes[:, 1]
  for text, off in (
    (0, rest // 2 + np.where(is_first, longer, 0)),
    (1, (rest + 1) // 2 + np.where(is_first, 0, longer)),
  ):
    front = _set_bits(hashing.mix(draws, _FRONT, text), off)
    spans[at, text, 0] += front
    spans[at, text, 1] -= off - front


def _set_bits(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """Returns the number of set bits among `counts` random bits."""
  total = np.zeros(len(counts), np.int64)
  left, word = counts, 0
  while (left > 0).any():
    at = np.flatnonzero(left > 0)
    bits = hashing.mix(keys[at], word)
    unused = np.maximum(_WORD - left[at], 0).astype(np.uint64)
    total[at] += np.bitwise_count(bits >> unused)
    left, word = left - _WORD, word + 1
  return total


def pack(lengths: Sequence[int], room: int, most: int) -> list[list[int]]:
  """Groups pairs into rows by best fit decreasing.

  The longest pair comes first, each goes into the fullest row that has room for
  it. Rows are indexed by the room left, so the time does not grow with the
  number of open rows.

  Args:
    lengths: tokens of each pair, with [CLS] and two [SEP], from 1 to `room`.
    most: maximum of pairs per row, which are indices into `lengths`, ascending.

  >>> pack([5, 3, 6, 2], room=8, most=3)
  [[0, 1], [2, 3]]
  """
  if not len(lengths):
    return []
  sizes = np.asarray(lengths)
  least = int(sizes.min())
  order = np.argsort(-sizes, kind='stable')
  rows: list[list[int]] = []
  waiting: list[list[list[int]]] = [[] for _ in range(room + 1)]  # by room left
  some = 0  # bit r is set if there are open rows with room for r tokens
  for i, n in zip(order.tolist(), sizes[order].tolist(), strict=True):
    fits = some >> n
    if fits:
      left = n + (fits & -fits).bit_length() - 1  # the lowest bit that is set
      row = waiting[left].pop()
      if not waiting[left]:
        some ^= 1 << left
    else:
      row, left = [], room
      rows.append(row)
    row.append(i)
    left -= n
    if len(row) < most and left >= least:
      waiting[left].append(row)
      some |= 1 << left
  for row in rows:
    row.sort()
  rows.sort(key=lambda row: row[0])
  return rows
