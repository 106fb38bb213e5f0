"""Predicts the words in place of [MASK]."""

import dataclasses
from typing import Any

import numpy as np

from bert_jax import errors
from bert_jax.inference import padding
from bert_jax.model import bert_config, heads, precision
from bert_jax.tokenization.tokenizer import Tokenizer

_LENGTH_STEP = 64  # tokens


def fill(
  params: Any,
  config: bert_config.BertConfig,
  tokenizer: Tokenizer,
  sentence: str,
  top: int = 5,
):
  """Finds the likeliest words for each [MASK] of a sentence, in float32.

  A causal model sees only the words before a mask, or only those after it.

  Returns:
    For each mask in order, a list of `top` (word piece, probability), the
    likeliest first.
  """
  ids = tokenizer.encode(sentence)['input_ids']
  masks = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
  if not masks:
    raise errors.UserError(
      f'no [MASK] in {sentence!r}; write [MASK], in capitals, in place of the '
      'word to guess.'
    )
  padding.check_length('the sentence', len(ids), config.max_positions)
  length = padding.round_up(len(ids), _LENGTH_STEP, config.max_positions)
  encoded = padding.chain(tokenizer, [ids], [len(ids)])
  batch = encoded.make_batch(np.array([0]), length, tokenizer.pad_id)
  # A causal model's hidden state predicts the token beside its own.
  places = [i - config.target_offset for i in masks]
  batch['masked_lm_positions'] = np.array([places], np.int32)
  config = dataclasses.replace(config, dtype='float32')
  logits = _mlm_logits(params, batch, config)[0]  # [P, V]
  # The embeddings may have padding rows, to make V divisible.
  logits = np.asarray(logits)[:, : tokenizer.size]
  # By numpy, since jax would compile each of these operations.
  shares = np.exp(logits - logits.max(-1, keepdims=True))
  shares /= shares.sum(-1, keepdims=True)
  best = np.argsort(-shares, -1, kind='stable')[:, :top]
  names = {i: tokenizer.decode([i]) for i in best.ravel().tolist()}
  blank = {i: tokenizer.vocab[i] for i, x in names.items() if not x.strip()}
  names |= blank  # such as a line break, which would break the line
  return [
    [(names[i], float(mask[i])) for i in words]
    for words, mask in zip(best, shares, strict=True)
  ]


@precision.jit_inference('config')
def _mlm_logits(params, batch, config):
  bert = heads.PretrainingModel(config, with_nsp=False)
  return bert.apply({'params': params}, batch)[0]  # [B, P, V]
