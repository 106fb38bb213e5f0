"""Fills rows with consecutive sentences of documents, as RoBERTa does.

FULL-SENTENCES and DOC-SENTENCES of arXiv 1907.11692, section 4.2. What a row has of
one document is a part, a sequence of its own: [CLS] sentences [SEP]. Parts are made
of token offsets; no token is copied.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax.data import hashing, pairs

SPECIAL_TOKENS = 2  # of a part

_FEWEST = 8  # tokens of a part, where a document can be cut elsewhere
_FIRST = 1  # tag of hashes


def make_rows(
  texts: pairs.Texts, passes: Iterable[tuple], length: int, is_mixed: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
  """Yields spans and is_random of parts, as `pairs.Pairs`, and parts of each row.

  Documents of a pass are shuffled. What does not fit into a row goes on in the next.

  Args:
    passes: (documents, their passes, their random keys), [M] each, in turn.
    length: tokens of a row, with [CLS] and [SEP] of each part; a sentence fits.
    is_mixed: whether a row goes on with the next document.
  """
  left, shorter = np.zeros((0, 2), int), 0
  for documents, number, keys in passes:
    order = np.lexsort((keys, number))
    runs = texts.documents[documents[order][:, None] + np.arange(2)]
    if not is_mixed:  # else all passes would have the same rows
      spare = -np.diff(texts.sentences[runs])[:, 0] % (length - SPECIAL_TOKENS)
      draws = hashing.to_uniform(hashing.mix(keys[order], _FIRST))
      shorter = (draws * (spare + 1)).astype(int)
    runs = np.concatenate([left, runs])
    spans, counts = _fill(texts, runs, length, is_mixed, shorter)
    if is_mixed:  # the last row goes on with the next passes
      spans, rest = np.split(spans, [len(spans) - counts[-1]])
      left, counts = np.searchsorted(texts.sentences, rest), counts[:-1]
    yield spans[:, None], np.zeros(len(spans), bool), counts
  if n := len(left):
    yield texts.sentences[left][:, None], np.zeros(n, bool), np.array([n])


def _fill(texts, runs, length, is_mixed, shorter):
  """Returns spans [N, 2] of the parts of all rows, and how many each has.

  Each of `runs`, [M, 2], is the first sentence of a document, and one past its
  last; by `shorter` tokens its first row is shorter than the others.
  """
  counts = runs[:, 1] - runs[:, 0]
  ends = counts.cumsum()
  firsts = ends - counts
  document = np.repeat(np.arange(len(runs)), counts)  # [K], of each sentence
  at = np.arange(len(document))
  place = at + (runs[:, 0] - firsts)[document]  # in `texts`
  before = np.append(0, np.diff(texts.sentences)[place].cumsum())  # [K + 1]
  # Sentences i to j - 1, of documents d to e, take a row of
  # before[j] - before[i] + 2 (e - d + 1) tokens.
  special = SPECIAL_TOKENS * document
  full = before[:-1] + special + length - SPECIAL_TOKENS
  full[firsts] -= shorter
  stop = np.searchsorted(before[1:] + special, full, 'right')
  if not is_mixed:
    stop = np.clip(stop, at + 1, ends[document])
  # A document of which a row, or the next, had fewer than 8 tokens is cut earlier
  # or, if it begins in the row, goes to the next as a whole.
  cut = document[np.minimum(stop, len(at) - 1)]  # which may be cut
  begin = np.maximum(firsts[cut], at)
  enough = np.searchsorted(before, before[ends] - _FEWEST, 'right') - 1
  new = np.minimum(stop, enough.clip(0)[cut])
  is_stub = before[new] - before[begin] < _FEWEST
  new = np.where(is_stub, np.where(begin > at, begin, stop), new)
  is_cut = (firsts[cut] < stop) & (stop < ends[cut])
  after = np.where(is_cut, new, stop).data  # faster by the item
  begins = [0]  # of rows
  while (k := after[begins[-1]]) < len(after):
    begins.append(k)
  parts = np.union1d(begins, firsts)
  first = texts.sentences[place[parts]]
  spans = np.stack(
    [first, first + np.diff(before[parts], append=before[-1])], 1
  )
  return spans, np.diff(np.searchsorted(parts, begins), append=len(parts))
