"""Scores sentences by their pseudo-log-likelihood.

It is the sum of the log-probabilities of the word pieces, each predicted from all
others (arXiv 1910.14659) except the later pieces of its own word, which would give
it away (PLL-word-l2r, arXiv 2305.10588). Of a causal model, it is the likelihood.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference import padding, source, trained_length
from bert_jax.model import heads, precision
from bert_jax.runtime import progress
from bert_jax.tokenization.tokenizer import Tokenizer

_TOKENS = 2048  # per batch, about: on a CPU, its logits stay in the cache
Ids = Sequence[int]  # of a sentence, without special tokens
Words = list[tuple[int, int]]  # where words begin and end in them


def split_words(ids: Ids, tokenizer: Tokenizer) -> Words:
  """Returns where the words of a sentence are."""
  goes_on = tokenizer.continues(np.array(ids, int))
  starts = [i for i, x in enumerate(goes_on) if not (i and x)]
  return list(itertools.pairwise([*starts, len(ids)]))


def choose_words(
  first: Ids, second: Ids, tokenizer: Tokenizer, full: bool = False
) -> list[Words]:
  """Returns the words of two sentences that decide which is likelier.

  If they differ in one, these two, unless `full`: their probabilities, given the
  others, have the ratio of the sentences'. Else all or, of equal sentences, none.
  """
  words = [split_words(ids, tokenizer) for ids in (first, second)]
  both = zip(*words, strict=False)
  differ = [x for x in both if first[slice(*x[0])] != second[slice(*x[1])]]
  if len(words[0]) != len(words[1]) or len(differ) > (not full):
    return words
  return [[x[k] for x in differ] for k in range(2)]


def score(
  model: source.Source, sentences: Sequence[Ids], words: Sequence[Words]
) -> np.ndarray:
  """Returns the pseudo-log-likelihood of each sentence's words, float64 [N]."""
  of, values = predict(model, sentences, words)
  return np.bincount(of[:, 0], values[:, 0], len(sentences))


def predict(
  model: source.Source, sentences: Sequence[Ids], words: Sequence[Words]
) -> tuple[np.ndarray, np.ndarray]:
  """Predicts each piece of words from the others, see above.

  Returns:
    (of, values): sentence, place of the piece and end of its word, [M, 3]; and its
    log-probability, and whether it is the likeliest, 0 or 1, float [M, 2].
  """
  words_of, size = model.tokenizer, model.tokenizer.size
  config = dataclasses.replace(model.config, dtype='float32')
  rows = [[words_of.cls_id, *x, words_of.sep_id] for x in sentences]
  longest = max(rows, key=len, default=[])
  text = words_of.decode(longest[1:-1])
  padding.check_length(repr(text), len(longest), config.max_positions)
  trained_length.warn(model, map(len, rows))
  masks = [
    (row, first + 1, end + 1)
    for row, spans in enumerate(words)
    for begin, end in spans
    for first in range(begin, end)
  ]
  batches = _make_batches(model, rows, np.array(masks, int).reshape(-1, 3))
  of, found, pending = [np.zeros((0, 3), int)], [np.zeros((0, 2))], None
  with progress.Progress(len(masks), 'pieces', 'scoring') as bar:
    for part, batch in itertools.chain(batches, [(None, None)]):
      before = pending  # read while the next batch is computed
      pending = batch and (part, _compute(model.params, batch, config, size))
      if before is not None:
        part, values = before
        of.append(part)
        found.append(jax.device_get(values)[: len(part)])
        bar.update(len(part))
  return np.concatenate(of), np.concatenate(found)


def _make_batches(model, rows, masks) -> Iterator[tuple[np.ndarray, dict]]:
  """Yields (masks, batch that they are of); masks are (row, first, end)."""
  encoded = padding.chain(model.tokenizer, rows, [*map(len, rows)])
  steps = np.where(encoded.lengths <= 32, 4, 32)  # few shapes are compiled
  lengths = -(-encoded.lengths // steps) * steps
  lengths = np.minimum(lengths, model.config.max_positions)[masks[:, 0]]
  for length in np.unique(lengths):
    alike, places = masks[lengths == length], np.arange(length)
    count = min(-(-_TOKENS // length), len(alike))
    for part in np.split(alike, range(count, len(alike), count)):
      # The last batch is filled up with rows that it has.
      of, first, end = np.resize(part, (count, 3)).T[..., None]
      batch = encoded.make_batch(of[:, 0], length, model.tokenizer.pad_id)
      # A model that reads from the right predicts a piece from the later ones.
      end = first + 1 if model.config.reverse else end
      hidden = (first <= places) & (places < end)
      ids, mask = batch['input_ids'], np.int32(model.tokenizer.mask_id)
      batch['input_ids'] = np.where(hidden, mask, ids)
      # A causal model's hidden state predicts the token beside its own.
      at = np.int32(first - model.config.target_offset)
      batch['masked_lm_positions'] = at
      batch['masked_lm_ids'] = np.take_along_axis(ids, first, 1)
      yield part, batch


@precision.jit_inference('config', 'size')
def _compute(params, batch, config, size):
  """Returns `predict`'s values for each row's target, [R, 2]."""
  bert = heads.PretrainingModel(config, with_nsp=False)
  # The embeddings may have padding rows, to make V divisible.
  logits = bert.apply({'params': params}, batch)[0][:, 0, :size]  # [R, V]
  chosen = jnp.take_along_axis(logits, batch['masked_lm_ids'], -1)[:, 0]
  likelihood = chosen - jax.nn.logsumexp(logits, -1)
  return jnp.stack([likelihood, chosen >= logits.max(-1)], 1)
