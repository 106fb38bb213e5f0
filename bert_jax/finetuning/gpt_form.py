"""GPT's form of fine-tuning: its tokens, its rows and its second loss.

"Improving language understanding by generative pre-training", section 3.3: a
text is [START] text [EXTRACT], a pair [START] text [DELIMITER] text [EXTRACT],
with tokens that are new in fine-tuning; the language model's loss is added to
the task's (equation 5).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import errors
from bert_jax.finetuning import encode, supervised
from bert_jax.inference import padding
from bert_jax.model import classifier
from bert_jax.ops import tied_decoder
from bert_jax.tokenization.tokenizer import Tokenizer

TOKENS = '[START]', '[DELIMITER]', '[EXTRACT]'
LOSS = 'half_lm_loss'
_WEIGHT = 0.5  # of the language model's loss


def extend(tokenizer: Tokenizer) -> Tokenizer:
  """Returns the tokenizer with `TOKENS` at the end of its vocabulary."""
  known = sorted(set(TOKENS) & set(tokenizer.vocab))
  if known:
    raise errors.UserError(
      f'the vocabulary of init_from has {known[0]} already, which '
      'finetuning.form=gpt adds; start from a model that was only pre-trained.'
    )
  return dataclasses.replace(tokenizer, vocab=(*tokenizer.vocab, *TOKENS))


def join(
  tokenizer: Tokenizer,
  firsts: Sequence[list[int]],
  seconds: Sequence[list[int]] | None,
  max_length: int,
) -> padding.Encoded:
  """Makes rows of one segment; args as `encode.join`."""
  frame = range(tokenizer.size - 3, tokenizer.size)
  rows = encode.join(tokenizer, firsts, seconds, max_length, frame)
  return rows._replace(firsts=rows.lengths.astype(rows.firsts.dtype))


def weigh_tokens(batch: dict[str, jax.Array]) -> jax.Array:
  """Returns the weight of each token to predict, float32 [B, S - 1]."""
  tokens = batch['input_mask'][:, 1:].astype(jnp.float32)
  return tokens * batch['label_weights'][:, None]


def count_tokens(batch: dict[str, jax.Array]) -> jax.Array:
  """Returns how many tokens of a batch are predicted, float32."""
  return jnp.sum(weigh_tokens(batch))


def compute(
  module: classifier.GptClassifier,
  params: Any,
  batch: dict[str, jax.Array],
  key: jax.Array,
):
  """Returns (logits [B, C], half the language model's loss over the batch)."""
  logits, inputs = supervised.apply(module, params, batch, key, 'with_tokens')
  loss, _ = tied_decoder.sum_losses(
    *inputs,
    module.config.vocab_size,
    batch['input_ids'][:, 1:],
    weigh_tokens(batch),
  )
  return logits, _WEIGHT * loss
