"""Initial word embeddings from which words stand beside which.

Each word gets a vector from the pointwise mutual information between it and the
words at a distance of one and two (Levy and Goldberg, 2014, Neural word embedding
as implicit matrix factorization; Levy et al., 2015, TACL). docs/plateau.md has why,
and what it gains.
"""

import math
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.data import hashing
from bert_jax.model import bert_config, initial_attention
from bert_jax.pretraining import batches

# Standard deviation of the embeddings, as a multiple of BERT's. In an hour they
# grow to twice that; docs/plateau.md compares it with half as much.
_SCALE = 4.0
_DISTANCES = ((1, 1.0), (2, 0.5))  # in tokens, and their weight
# Contexts are the most frequent words, as many as make a matrix of 128 MB.
_ENTRIES = 2**25
_SMOOTHING = 0.75  # power of the contexts' frequencies, against rare ones
_ROUNDS, _SPARE = 2, 16  # of the randomised singular value decomposition
_TAG = 7  # of hashes


def start(
  data: batches.Batches, bert: bert_config.BertConfig, new: Any
) -> tuple[dict, dict]:
  """Replaces new word embeddings by vectors; see `trainer.task.Task.start`."""
  vocab_size = bert.vocab_size
  old = new['embeddings']['word']['embedding']  # [padded V, D]
  vectors = make(data.read_sample(), vocab_size, old.shape[1])
  if jax.process_count() > 1:  # hosts of other kinds round differently
    vectors = np.array(multihost_utils.broadcast_one_to_all(vectors))
  vectors *= _SCALE * bert.initializer_std
  known = vectors.any(1, keepdims=True)  # the others stay random
  if bert.modern and bert.attention_init == 'wide':
    vectors += _SCALE * initial_attention.make_common(bert)
  words = old.copy()
  words[:vocab_size] = np.where(known, vectors, old[:vocab_size])
  embeddings = {**new['embeddings'], 'word': {'embedding': words}}
  return {**new, 'embeddings': embeddings}, {}


def make(ids: np.ndarray, vocab_size: int, size: int) -> np.ndarray:
  """Returns a vector for each word, with a standard deviation of about 1.

  They are float32 [V, D], zeros for words that are not in the text: the ids of its
  rows, [N, S], of which -1 is not text.
  """
  u, s = _decompose(_weigh_contexts(ids, vocab_size), size)
  seen = np.bincount(ids[ids >= 0], minlength=vocab_size) > 0
  if not u.any() or not seen.any():  # no word has a neighbour
    return np.zeros((vocab_size, size), np.float32)
  vectors = u * np.sqrt(s)
  vectors -= vectors[seen].mean(0)
  # Spread over all dimensions, since the first ones hold the positions, too.
  vectors = vectors @ _make_rotation(len(s))
  vectors = np.pad(vectors, ((0, 0), (0, size - len(s))))
  length = np.sqrt(np.mean(vectors**2, 1, keepdims=True))
  usual = max(np.median(length[seen]), 1e-6)
  # As long as usual, or shorter if little is known of a word.
  vectors *= np.minimum(1 / usual, 1 / np.maximum(length, 1e-6))
  return (vectors * seen[:, None]).astype(np.float32)


def _weigh_contexts(ids, vocab_size):
  """Returns positive mutual information with contexts, float32 [V, contexts].

  A context is a frequent word at a distance to the left or to the right.
  """
  counts = np.bincount(ids[ids >= 0], minlength=vocab_size)
  most = max(1, _ENTRIES // (2 * len(_DISTANCES) * vocab_size))
  frequent = np.argsort(-counts, kind='stable')[:most]
  column = np.full(vocab_size + 1, -1)  # the last one is that of -1
  column[frequent] = np.arange(len(frequent))
  blocks = []
  for distance, weight in _DISTANCES:
    left, right = ids[:, :-distance], ids[:, distance:]
    # Beyond [SEP] begins another text.
    near = np.lib.stride_tricks.sliding_window_view(ids, distance + 1, 1)
    is_text = (near >= 0).all(-1)
    for word, context in ((left, right), (right, left)):
      at = is_text & (column[context] >= 0)
      cells = word[at] * len(frequent) + column[context[at]]
      pairs = np.bincount(cells, minlength=vocab_size * len(frequent))
      pairs = pairs.reshape(vocab_size, -1).astype(np.float32)
      blocks.append(weight * _find_information(pairs))
  return np.concatenate(blocks, 1)


def _find_information(counts):
  """Returns positive pointwise mutual information, by counts [V, contexts]."""
  words = counts.sum(1, keepdims=True)
  contexts = counts.sum(0) ** _SMOOTHING
  expected = np.maximum(words, 1) * (contexts / max(contexts.sum(), 1e-30))
  with np.errstate(divide='ignore'):
    return np.maximum(np.log(counts / np.maximum(expected, 1e-30)), 0)


def _decompose(matrix, rank):
  """Returns the largest singular values and their left vectors, [V, k] and [k].

  By subspace iteration (Halko et al., 2011, arXiv 0909.4061) from signs that do
  not depend on a generator, with the sign of each vector fixed.
  """
  rank = min(rank, *matrix.shape)
  width = min(rank + _SPARE, *matrix.shape)
  cells = np.arange(matrix.shape[1] * width).reshape(-1, width)
  signs = np.where(hashing.mix(_TAG, cells) >> np.uint64(63), 1, -1)
  q = matrix @ signs.astype(np.float32)
  for _ in range(_ROUNDS):
    q, _ = np.linalg.qr(matrix @ (matrix.T @ q))
  small = matrix.T @ q  # [contexts, width]
  squares, v = np.linalg.eigh(small.T @ small)
  u = (q @ v)[:, ::-1][:, :rank]
  largest = u[np.argmax(np.abs(u), 0), np.arange(rank)]
  s = np.sqrt(np.maximum(squares[::-1][:rank], 0))
  return u * np.sign(largest), s


def _make_rotation(size):
  """Returns an orthogonal matrix that mixes all dimensions, a cosine transform."""
  at = np.arange(size)
  cosines = np.cos(math.pi / size * np.outer(at, at + 0.5))
  cosines[0] /= math.sqrt(2)
  return math.sqrt(2 / size) * cosines
