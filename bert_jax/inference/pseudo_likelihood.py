"""Scores sentences by their pseudo-log-likelihood.

A sentence's score is the sum of the log-probabilities of its word pieces, each
predicted from all others (Salazar et al., 2020, arXiv 1910.14659) except the
later pieces of its own word, which are masked too: otherwise they would give
rare words away (PLL-word-l2r, Kauf and Ivanova, 2023, arXiv 2305.10588). With a
causal model, it is the log-likelihood.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.inference import source, trained_length
from bert_jax.model import heads, precision
from bert_jax.runtime import progress
from bert_jax.tokenization.tokenizer import Tokenizer

_TOKENS = 2048  # per batch, about: on a CPU, its logits stay in the cache


def split_words(
  ids: Sequence[int], tokenizer: Tokenizer
) -> list[tuple[int, int]]:
  """Returns (begin, end) of each word of a sentence without special tokens."""
  pieces = tokenizer.tokens(ids)
  starts = [i for i, x in enumerate(pieces) if not (i and x.startswith('##'))]
  return list(itertools.pairwise([*starts, len(ids)]))


def choose_words(
  first: Sequence[int],
  second: Sequence[int],
  tokenizer: Tokenizer,
  full: bool = False,
) -> list[list[tuple[int, int]]]:
  """Returns the words of two sentences that decide which is likelier.

  If they differ in one word, the probabilities of the two words, given the
  others, have the ratio of the probabilities of the sentences. Then these words
  are returned, unless `full`; otherwise all words or, of equal sentences, none.
  """
  words = [split_words(ids, tokenizer) for ids in (first, second)]
  differ = [
    (a, b)
    for a, b in zip(*words, strict=False)
    if first[slice(*a)] != second[slice(*b)]
  ]
  if len(words[0]) != len(words[1]) or len(differ) > (not full):
    return words
  return [[x[k] for x in differ] for k in range(2)]


def score(
  model: source.Source,
  sentences: Sequence[Sequence[int]],
  words: Sequence[Sequence[tuple[int, int]]],
) -> np.ndarray:
  """Computes the pseudo-log-likelihood of words of sentences, in float32.

  Args:
    sentences: ids of N sentences, without special tokens.
    words: (begin, end) of the words of each sentence to score.

  Returns:
    Sums of log-probabilities in nats, float64 [N].
  """
  tokenizer, config = model.tokenizer, model.config
  rows = [np.array([tokenizer.cls_id, *x, tokenizer.sep_id]) for x in sentences]
  longest = max(rows, key=len, default=())
  if len(longest) > config.max_positions:
    raise errors.UserError(
      f'{tokenizer.decode(longest[1:-1])!r} has {len(longest)} tokens with [CLS] '
      f'and [SEP], the model takes {config.max_positions}; shorten it.'
    )
  trained_length.warn(model, map(len, rows))
  masks = [
    (row, first + 1, end + 1)
    for row, spans in enumerate(words)
    for begin, end in spans
    for first in range(begin, end)
  ]
  found, pending = np.zeros(len(rows)), None
  with progress.Progress(len(masks), 'pieces', 'scoring') as bar:
    for batch, mine in _make_batches(model, rows, np.array(masks, int)):
      values = _compute(
        model.params,
        batch,
        dataclasses.replace(config, dtype='float32'),
        tokenizer.size,
      )
      if pending is not None:  # read while the next batch is computed
        _add(found, *pending, bar)
      pending = mine, values
    if pending is not None:
      _add(found, *pending, bar)
  return found


def _add(found, rows, values, bar):
  np.add.at(found, rows, jax.device_get(values)[: len(rows)])
  bar.update(len(rows))


def _make_batches(model, rows, masks) -> Iterator[tuple[dict, np.ndarray]]:
  """Yields batches of rows of similar length, and the sentence of each row.

  Args:
    rows: ids of each sentence, with special tokens.
    masks: (sentence, first, end) of what a row masks, int [M, 3].
  """
  sizes = np.array([len(row) for row in rows])
  steps = np.where(sizes <= 32, 4, 32)  # few shapes are compiled
  lengths = np.minimum(-(-sizes // steps) * steps, model.config.max_positions)
  for length in np.unique(lengths[masks[:, 0]] if len(masks) else []):
    own = masks[lengths[masks[:, 0]] == length]
    size = min(-(-_TOKENS // length), len(own))
    for start in range(0, len(own), size):
      part = own[start : start + size]
      yield _mask(model, rows, part, (size, length)), part[:, 0]


def _mask(model, rows, masks, shape):
  """Returns a batch of this shape; rows after the last mask are padding."""
  words, places = model.tokenizer, np.arange(shape[1])
  ids = np.full(shape, words.pad_id, np.int32)
  sizes = np.ones((shape[0], 1), int)  # a softmax over no tokens is NaN
  targets, first = np.zeros((2, shape[0]), np.int32)
  for i, (row, at, end) in enumerate(masks):
    sizes[i] = len(rows[row])
    ids[i, : sizes[i, 0]] = rows[row]
    targets[i], first[i] = rows[row][at], at
    # A model that reads from the right predicts a piece from the later ones.
    ids[i, at : at + 1 if model.config.reverse else end] = words.mask_id
  return {
    'input_ids': ids,
    'input_mask': (places < sizes).astype(np.int32),
    'segment_ids': np.zeros_like(ids),
    # A causal model's hidden state predicts the token beside its own.
    'masked_lm_positions': first[:, None] - model.config.target_offset,
    'masked_lm_ids': targets[:, None],
  }


@precision.jit_inference('config', 'size')
def _compute(params, batch, config, size):
  """Returns the log-probability of each row's target, [R]."""
  bert = heads.PretrainingModel(config, with_nsp=False)
  logits = bert.apply({'params': params}, batch)[0][:, 0]  # [R, V]
  chosen = jnp.take_along_axis(logits, batch['masked_lm_ids'], -1)[:, 0]
  # The embeddings may have padding rows, to make V divisible.
  return chosen - jax.nn.logsumexp(logits[:, :size], -1)
