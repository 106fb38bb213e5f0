"""Records made by hand."""

import itertools

import numpy as np

from bert_jax.data import row_format


def record(pairs, ids='<u2') -> bytes:
  """Returns the record of a row of pairs (first ids, second ids, is_random)."""
  texts = [text for first, second, _ in pairs for text in (first, second)]
  ends = list(itertools.accumulate(map(len, texts)))
  spans = np.array(list(zip([0, *ends[:-1]], ends, strict=True)))
  flat = np.array([i for text in texts for i in text], ids)
  [made] = row_format.encode(
    flat,
    spans.reshape(-1, 2, 2),
    np.array([is_random for _, _, is_random in pairs]),
    np.arange(len(pairs)),
    np.array([len(pairs)]),
  )
  return made
